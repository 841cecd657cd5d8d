"""Running batches through a pipeline by torch's schedules, in micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fleetx.comm.divided_tensors import own_part, whole
from fleetx.comm.layout import Group
from fleetx.runtime import heartbeat
from fleetx.step.activations import Activations
from fleetx.techniques.joined_batches import joined_samples
from fleetx.techniques.random_state import SharedRandomNumbers
from fleetx.techniques.same_batch import compare_batches

Loss = Callable[[Tensor, Tensor], Tensor]


class StageModule(nn.Module):
    """The layers of a stage, one after another."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        """Run the layers."""
        for layer in self.layers:
            x = layer(x)
        return x


def workers_of(mode: str, workers: int, stages_each: int) -> list[int]:
    """Return which worker has each stage: they go round the workers, or for "ZBVPP" there and
    back."""
    if mode == "ZBVPP":
        return [*range(workers), *reversed(range(workers))]
    return list(range(workers)) * stages_each


class PipelineRunner:
    """Runs batches; all workers of a copy must call it, with the same ones or with parts of one."""

    def __init__(
        self,
        modules: Mapping[int, StageModule],
        workers: Sequence[int],
        group: Group,
        *,
        copy: Group,
        micro_batches: int,
        micro_batch_size: int | None,
        mode: str,
        joins: SharedRandomNumbers | None,
        activations: Activations,
    ) -> None:
        """`modules` are those of this worker by stage, `workers` says who has each stage. `copy`
        has all workers that get the same batches, or that join theirs: `joins` has the random
        numbers of those that divide a stage then, else it is None. `micro_batch_size` is None if
        any will do; `mode` is a `schedule_mode`; `activations` are those of a step."""
        self._micro_batch_size = micro_batch_size
        self._modules = modules
        self._workers = workers
        self._group = group
        self._copy = copy
        self._joins = joins
        self._has_compared = joins is not None  # what is gathered is the same on all
        self._micro_batches = micro_batches
        self._mode = mode
        self._activations = activations
        self._schedules: dict[Any, Any] = {}  # by what shapes between stages follow from
        for stage, module in modules.items():
            self._watch(stage, module)

    def train(self, inputs: Tensor, targets: Tensor, loss_fn: Loss) -> Tensor:
        """Run forward and backward of a batch; return the mean loss, the same on all workers."""
        return self._run("step", inputs, targets, loss_fn)

    @torch.no_grad()
    def evaluate(self, inputs: Tensor, targets: Tensor, loss_fn: Loss) -> Tensor:
        """Run forward of a batch; return the mean loss, the same on all workers."""
        return self._run("eval", inputs, targets, loss_fn)

    def _counting(self) -> AbstractContextManager[None]:
        """Return a context in which activations count as those of the step."""
        return self._activations.running(list(self._modules.values()))

    def _count_chunks(self, stage: Any) -> None:
        """Count activations where torch's stage runs a micro-batch; it also runs some to find out
        their shapes."""
        run = stage.forward_one_chunk

        def counted(*args: Any, **kwargs: Any) -> Any:
            with self._counting():
                return run(*args, **kwargs)

        stage.forward_one_chunk = counted
        self._activations.until_known(lambda: delattr(stage, "forward_one_chunk"))

    def _watch(self, stage: int, module: nn.Module) -> None:
        """Count what a stage sends to stages on other workers: outputs to the next one, gradients
        of inputs to the previous one."""
        own = self._workers[stage]
        to_next = stage + 1 < len(self._workers) and self._workers[stage + 1] != own
        to_previous = stage > 0 and self._workers[stage - 1] != own

        def leave(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            forward = _bytes(output) if to_next else 0.0
            backward = _bytes(inputs[0]) if to_previous and inputs[0].requires_grad else 0.0
            self._activations.sends("pp", forward=forward, backward=backward)

        self._activations.until_known(module.register_forward_hook(leave).remove)

    def _run(self, what: str, inputs: Tensor, targets: Tensor, loss_fn: Loss) -> Tensor:
        if self._joins is not None:
            sends = partial(self._activations.sends, *JOINED)
            with self._counting() if what == "step" else nullcontext():
                inputs, targets = joined_samples((inputs, targets), self._copy, sends)
        count = self._micro_batches
        if not len(inputs) or len(inputs) % count:
            raise ValueError(
                f"a batch has {len(inputs)} samples, which cannot be divided into the {count} "
                "equal micro-batches of pipeline_configs['accumulate_steps']: choose another batch "
                "size, and drop_last=True in the loader."
            )
        wanted = self._micro_batch_size
        if wanted is not None and what == "step" and len(inputs) != count * wanted:
            raise ValueError(
                f"a batch has {len(inputs)} samples, but pipeline_configs['micro_batch_size'] is "
                f"{wanted} and 'accumulate_steps' is {count}: give batches of {count * wanted}, or "
                "leave micro_batch_size out."
            )
        if not self._has_compared:
            compare_batches((inputs, targets), self._copy)
            self._has_compared = True
        is_last = self._group.rank == self._workers[-1]
        numbers = nullcontext() if self._joins is None else self._joins.in_use()
        with heartbeat.collective("micro-batches of the pipeline"), numbers:
            if what == "eval" and self._mode == "ZBVPP":
                losses = self._stage_by_stage(inputs, targets, loss_fn)
            else:
                losses = []
                given: dict[str, Any] = {"target": targets, "losses": losses} if is_last else {}
                call = getattr(self._schedule(what, inputs, loss_fn), what)
                call(*((inputs,) if self._group.rank == 0 else ()), **given)
        found = torch.zeros((), dtype=torch.float64, device=inputs.device)
        if is_last:
            found = torch.stack([loss.detach() for loss in losses]).sum().to(torch.float64)
        return self._group.broadcast(found, self._workers[-1])

    def _stage_by_stage(self, inputs: Tensor, targets: Tensor, loss_fn: Loss) -> list[Tensor]:
        """Return the shares of micro-batches in the mean loss, on the worker of the last stage.

        Torch's schedule of the mode cannot leave out its backward.
        """
        count, losses = self._micro_batches, []
        for x, target in zip(inputs.chunk(count), targets.chunk(count), strict=True):
            for stage, worker in enumerate(self._workers):
                if worker == self._group.rank:
                    x = self._modules[stage](x)
                if stage < len(self._workers) - 1:
                    x = _sent(self._group, x, worker)
                elif worker == self._group.rank:
                    losses.append(whole(loss_fn(x, target)) / count)
        return losses

    def _schedule(self, what: str, inputs: Tensor, loss_fn: Loss) -> Any:
        from torch.distributed import pipelining

        key = what, inputs.shape, inputs.dtype, loss_fn
        if key not in self._schedules:
            stages = [
                pipelining.PipelineStage(
                    module,
                    stage,
                    len(self._workers),
                    inputs.device,
                    group=self._group.process_group,
                )
                for stage, module in self._modules.items()
            ]
            for stage in stages if what == "step" and not self._activations.is_known else ():
                self._count_chunks(stage)
            count = self._micro_batches

            def share(outputs: Tensor, targets: Tensor) -> Tensor:
                loss: Tensor = whole(loss_fn(outputs, targets))
                return loss / count

            # Losses are divided, not gradients: these are then as backward leaves them.
            kind = _kind(self._mode, what)
            own: Any = stages if self._mode in MANY_STAGES else stages[0]
            self._schedules[key] = kind(own, count, loss_fn=share, scale_grads=False)
        return self._schedules[key]


def _bytes(tensor: Tensor) -> float:
    own = own_part(tensor)
    return float(own.numel() * own.element_size())


_TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32)


def _sent(group: Group, outputs: Tensor, worker: int) -> Tensor:
    """Return on all workers what one of them has, of any shape; theirs are ignored."""
    outline = torch.tensor([_TYPES.index(outputs.dtype), *outputs.shape], device=outputs.device)
    length = group.broadcast(torch.tensor(len(outline), device=outputs.device), worker)
    if worker != group.rank:
        outline = torch.zeros(int(length), dtype=torch.int64, device=outputs.device)
    kind, *shape = group.broadcast(outline, worker).tolist()
    if worker != group.rank:
        outputs = torch.empty(shape, dtype=_TYPES[kind], device=outputs.device)
    return group.broadcast(outputs, worker)


JOINED = ("pp", "mp")
"""The dimensions of workers that join their batches."""
MANY_STAGES = ("VPP", "ZBVPP")
"""Modes in which a worker has several stages."""


def _kind(mode: str, what: str) -> Any:
    """Return torch's schedule of a mode."""
    from torch.distributed import pipelining

    if mode in MANY_STAGES:
        several = {
            "VPP": pipelining.ScheduleInterleaved1F1B,
            "ZBVPP": pipelining.ScheduleZBVZeroBubble,
        }
        return several[mode]
    is_alternating = mode == "1F1B" and what == "step"
    return pipelining.Schedule1F1B if is_alternating else pipelining.ScheduleGPipe
