"""stop_on_nan: end the training when a loss or gradient is not finite.

Wraps the precision. A hook adds up every gradient as backward makes it, before workers exchange it,
so that the worker and the parameter are known where the NaN enters. All workers are notified before
the update that it would corrupt (with LocalSGD at the next average, because workers do not wait for
each other before) and stop together, with the same message.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from fleetx import torch_private
from fleetx.comm import world
from fleetx.comm.divided_tensors import is_divided, own_part
from fleetx.runtime import environment
from fleetx.static import layers
from fleetx.static.errors import NotFiniteError
from fleetx.static.graph.default_programs import program_guard
from fleetx.static.graph.dtypes import is_floating
from fleetx.static.graph.op_names import writes_of
from fleetx.static.graph.operator import OpRole
from fleetx.static.ops.stop_on_nan_op import ADVICE, nearest_to_loss
from fleetx.step.program_step import ProgramStep, WrittenUpdate
from fleetx.step.registry import register
from fleetx.step.stages import Parameters, Stage
from fleetx.step.technique import NoSettings, Order, Row, Sizes, Technique
from fleetx.step.train_step import TrainStep

_LOSS = 1  # the number of the loss; parameters follow


class NanGuard:
    """Records the first loss or gradient of this worker that is infinite or NaN.

    In a program an op after everything else does so, where parameters stop being numbers.
    """

    def __init__(self, alone_as: int | None = None) -> None:
        """`alone_as` is the rank of a worker that stops by itself, without the others."""
        self._alone_as = alone_as
        self._names: list[str] = []
        self._hooked: set[int] = set()
        self._totals: dict[str, Tensor] = {}
        self._step = 0
        self._first: tuple[int, int] | None = None  # step, and index of what was not finite

    def watch(self, parameters: Parameters) -> None:
        """Register hooks on the gradients of these parameters."""
        self._names = list(parameters)
        for name, parameter in parameters.items():
            if parameter.requires_grad and id(parameter) not in self._hooked:
                self._hooked.add(id(parameter))
                if is_divided(parameter):  # autograd never sees the parts
                    parameter.register_post_accumulate_grad_hook(partial(self._add_part, name))
                else:
                    parameter.register_hook(partial(self._add, name))

    def _add(self, name: str, grad: Tensor) -> None:
        grad = grad.detach()
        values = torch_private.sparse_values(grad) if grad.is_sparse else grad
        total = values.sum(dtype=torch.promote_types(values.dtype, torch.float32))
        before = self._totals.get(name)
        self._totals[name] = total if before is None else before + total

    def _add_part(self, name: str, parameter: Tensor) -> None:
        self._add(name, own_part(parameter.grad))

    def note(self, loss: Tensor | None) -> None:
        """Check what backward has left; called once per step."""
        self._step += 1
        totals, self._totals = self._totals, {}
        if self._first is not None:
            return
        if loss is not None and not bool(loss.detach().isfinite().all()):
            self._first = self._step, _LOSS
        elif totals:
            device = next(iter(totals.values())).device
            finite = torch.stack([total.isfinite().to(device) for total in totals.values()])
            if not bool(finite.all()):
                known = dict(zip(totals, finite.tolist(), strict=True))
                good = [known.get(name, True) for name in self._names]
                name = nearest_to_loss(self._names, good)
                self._first = self._step, _LOSS + 1 + self._names.index(name)

    def forget(self) -> None:
        """Discard what was found: the step is skipped anyway."""
        self._first = None

    def agree(self) -> None:
        """Stop all workers if one has found something; all must call it."""
        if self._alone_as is not None:
            if self._first is not None:
                self._stop(self._first[0], self._alone_as, self._first[1])
            return
        own = torch.tensor(self._first or (0, 0))
        gathered = [each.tolist() for each in world.all_gather(own)]
        found = [(step, rank, number) for rank, (step, number) in enumerate(gathered) if number]
        if found:
            self._stop(*min(found))

    def _stop(self, step: int, rank: int, number: int) -> None:
        self.forget()
        what = "the loss" if number == _LOSS else f"the gradient of {self._names[number - 2]!r}"
        raise NotFiniteError(
            f"{what} became infinite or NaN in step {step} on worker {rank}, {ADVICE}"
        )

    def write(self, step: ProgramStep, written: WrittenUpdate) -> None:
        """Append the check to a program."""
        main, block = written.main, written.main.global_block()
        made = {name for op in block.ops for name in writes_of(op)}  # tables on servers are not
        parameters = [
            p.name
            for p in main.all_parameters()
            if p.trainable and is_floating(p.dtype) and p.name in made
        ]
        if not parameters:
            return
        with program_guard(main, written.startup), main.optimized_guard([]):
            counts = layers.create_global_var(
                [2], 0, "int64", persistable=True, name="stop_on_nan_counts"
            )
            block.append_op(
                type="stop_on_nan",
                inputs={
                    "Loss": [written.loss.name],
                    "Param": parameters,
                    "Counts": [counts.name],
                    "Due": list(getattr(step.param_sync, "counters", ())),
                },
                outputs={"CountsOut": [counts.name]},
                attrs={"first_worker": self._alone_as or 0, "op_role": OpRole.Optimize},
            )


@register
class StopOnNan(Technique[NoSettings]):
    """Stop at the first loss or gradient that is infinite or NaN.

    Where the strategy does not say, it is on with FLEETX_PROGRESS=1.
    """

    name = "stop_on_nan"
    order = Order.WATCH
    numbers = 1005, 1006
    keeps_mathematics = True
    wraps = frozenset({Stage.PRECISION})

    @classmethod
    def is_on(cls, strategy: object) -> bool:
        """Return whether a strategy asks for it, or leaves it open and the progress line is on."""
        wanted = bool(getattr(strategy, cls.name, False))
        was_set = getattr(strategy, "was_set", None)
        if was_set is None or was_set(cls.name):
            return wanted
        return wanted or environment.progress_switch() == "1"

    @classmethod
    def trials(cls, strategy: Any, device: str) -> list[tuple[str, dict[str, Any]]]:
        """Return nothing: it makes no step faster."""
        return []

    def change(self, step: TrainStep | ProgramStep) -> None:
        """Add the guard."""
        # Workers of servers have no group to agree in; the launcher ends those that are left.
        step.guard = guard = NanGuard(None if self.job.servers is None else self.job.rank)
        if isinstance(step, TrainStep):
            step.when_named.append(guard.watch)

    def rows(self, sizes: Sizes) -> list[Row]:
        """Return the line of the check."""
        text = "every loss and gradient"
        return [Row(stage=Stage.PRECISION, technique=self.name, settings=text)]
