"""`minimize` in stages: the base of all optimizers, and of those that wrap another one.

`minimize` is `backward` and `apply_gradients`. A `ProgramStage` writes around both: the loss to
differentiate, how the backward pass is appended, and what surrounds the updates. Fleet puts such
stages into the slots of a program's step; a `WrappedOptimizer` puts one around an optimizer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, cast

from fleetx.static.graph.default_programs import program_guard
from fleetx.static.graph.operator import Operator
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Variable
from fleetx.static.optimizer.accumulators import StateMixin
from fleetx.static.optimizer.learning_rate import LearningRateMixin

Pairs = Sequence[tuple[Any, Any]]
"""Parameters with their gradients."""


class ProgramStage:
    """A stage of a training program; by default it writes nothing."""

    def write_loss(self, loss: Variable) -> Variable:
        """Write what precedes the backward pass; return the loss to differentiate."""
        return loss

    def backward_settings(self) -> dict[str, Any]:
        """Return further arguments of the optimizer's `backward`."""
        return {}

    @contextmanager
    def updating(self, pairs: Pairs) -> Iterator[Pairs]:
        """Write what surrounds the updates; yield the pairs to update with."""
        yield pairs


class Minimizer:
    """`minimize`, in terms of `backward` and `apply_gradients`."""

    backward: Callable[..., list[tuple[Any, Any]]]
    """Appends the backward pass; returns the pairs (parameter, gradient)."""
    apply_gradients: Callable[[Pairs], list[Operator]]
    """Appends the updates to the default program; returns them."""

    def apply_optimize(
        self, loss: Variable, startup_program: Program | None, params_grads: Pairs
    ) -> list[Operator]:
        """Call `apply_gradients` in the programs of the loss."""
        with program_guard(loss.block.program, startup_program):
            return self.apply_gradients(params_grads)

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Sequence[Any] | None = None,
        no_grad_set: Any = None,
    ) -> tuple[list[Operator], list[tuple[Any, Any]]]:
        """Append gradients and updates that minimize `loss`; return (update ops, pairs)."""
        if not isinstance(loss, Variable):
            raise TypeError(f"minimize takes a loss Variable, not {loss.__class__.__name__}.")
        divided = [p.name for p in loss.block.program.all_parameters() if p.is_distributed]
        if divided:
            raise RuntimeError(
                f"{divided[0]!r} is sharded over the workers (split()), and the gradient of a "
                "shard is that of all workers' losses: train with fleet.distributed_optimizer, "
                "which takes their mean."
            )
        pairs = self.backward(
            loss,
            startup_program=startup_program,
            parameter_list=parameter_list,
            no_grad_set=no_grad_set,
        )
        return self.apply_optimize(loss, startup_program, pairs), pairs


def _of_inner(name: str) -> property:
    def write(self: WrappedOptimizer, value: Any) -> None:
        setattr(self.inner, name, value)

    return property(lambda self: getattr(self.inner, name), write)


class WrappedOptimizer(ProgramStage, Minimizer, LearningRateMixin, StateMixin):
    """An optimizer that adds one stage, itself, to another optimizer and shares its state."""

    slot: ClassVar[str] = ""
    """The slot of a program's step that its stage occupies exclusively, if any."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    inner_optimizer = _optimizer = property(lambda self: self.inner)  # Paddle's names

    def backward(  # type: ignore[override]
        self, loss: Variable, startup_program: Program | None = None, *args: Any, **more: Any
    ) -> list[tuple[Any, Any]]:
        """Append the stage's loss and the backward pass; return the pairs."""
        with program_guard(loss.block.program, startup_program):
            loss = self.write_loss(loss)
        more |= self.backward_settings()
        return cast("Any", self.inner.backward(loss, startup_program, *args, **more))

    def apply_gradients(self, params_grads: Pairs) -> list[Operator]:
        """Append the updates with what surrounds them to the default program; return them."""
        with self.updating(params_grads) as pairs:
            return cast("Any", self.inner.apply_gradients(pairs))


# The mixins' methods and scripts read the inner optimizer's attributes.
for _name in (
    *("_learning_rate", "_learning_rate_map", "_dtype", "_accumulators", "_opti_name_list"),
    *("_name", "_parameter_list", "_grad_clip", "grad_clip", "helper", "regularization"),
    "exchanges_gradients",
):
    setattr(WrappedOptimizer, _name, _of_inner(_name))
