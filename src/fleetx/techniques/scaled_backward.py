"""Gradients multiplied by a factor inside a model, and unscaled outside of it.

Small gradients underflow in float16, so backward runs on scaled ones. With `loss.backward()` the
factor acts between the model's outputs on one side and its inputs and parameters on the other: what
reaches a parameter from inside the model is divided by it before it is added to what comes from
elsewhere, such as a penalty on weights. A backward pass that builds a graph of its own
(`create_graph`) is not scaled, nor are those up to the next step. With `scaled(loss).backward()`
the loss itself is scaled and all that the pass reaches is divided, so that nothing depends on the
way of a gradient.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fleetx import torch_private
from fleetx.kernels.loss_scale import unscaled


class _Multiply(torch.autograd.Function):
    """An identity whose backward multiplies gradients by what `factor` returns.

    `inputs_of` says whose model begins behind it, where it stands in front of one.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, factor: Callable[[], float], inputs_of: ScaledBackward | None
    ) -> Tensor:
        ctx.factor, ctx.inputs_of = factor, inputs_of
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return grads[0] * ctx.factor(), None, None


class _BackwardPass:
    """The backward pass that runs now, if its loss is scaled."""

    def __init__(self) -> None:
        self.loss_scale = 1.0

    def begin(self, scale: float) -> None:
        """Note, until the pass ends, what all gradients in it are multiplied by."""
        self.loss_scale = scale
        _when_backward_ends(self.end)

    def end(self) -> None:
        """Clear the scale."""
        self.loss_scale = 1.0

    def unscale(self, grad: Tensor) -> Tensor:
        """Return the gradient of a leaf in true units."""
        return grad if self.loss_scale == 1.0 else unscaled(grad, self.loss_scale)


_PASS = _BackwardPass()
_IS_HOOKED = "_fleetx_unscaled"  # on parameters whose own hook is `_PASS.unscale`


class ScaledBackward:
    """Scales the gradients inside one model."""

    def __init__(self, factor: Callable[[], float]) -> None:
        """`factor` returns what gradients are multiplied by, and is called in each pass."""
        self._factor = factor
        self._inside = 1.0  # what the pass that runs multiplies gradients inside the model by
        self._task = -1  # the number of that pass
        self._keeps_unscaled = False  # until the next step
        self._has_warned = False
        self._hooked: set[int] = set()

    # -- the limits of the model ----------------------------------------------------------
    def begin_forward(self) -> None:
        """Forget a backward pass that raised."""
        if torch_private.current_graph_task_id() < 0:
            self._end()
            _PASS.end()

    def enter(self, x: Tensor) -> Tensor:
        """Return an input whose gradient leaves the model in true units."""
        if not (x.requires_grad and torch.is_grad_enabled()):
            return x
        return _Multiply.apply(x, lambda: 1.0 / self._inside, self)  # type: ignore[no-any-return, no-untyped-call]

    def leave(self, ends: list[Any], x: Tensor) -> Tensor:
        """Return an output whose gradient enters the model scaled.

        `ends` is a list of one forward pass: it notes what the outputs were computed by, from where
        the graph is followed if it has to be.
        """
        # A parameter that is returned as it is has no graph that could be scaled.
        if x.grad_fn is None or not torch.is_grad_enabled():
            return x
        ends.append(x.grad_fn)
        return _Multiply.apply(x, partial(self._scale_at_output, ends), None)  # type: ignore[no-any-return, no-untyped-call]

    def hook(self, parameters: Iterable[Tensor]) -> None:
        """Register hooks that divide gradients at parameters in a scaled pass, or one inside it."""
        for parameter in parameters:
            if id(parameter) in self._hooked:
                continue
            self._hooked.add(id(parameter))
            was = parameter.requires_grad
            parameter.requires_grad_()  # one frozen now may thaw
            if not hasattr(parameter, _IS_HOOKED):  # a model may be given to fleet again
                setattr(parameter, _IS_HOOKED, True)
                parameter.register_hook(_PASS.unscale)
            parameter.register_hook(self._unscale_nested)
            parameter.requires_grad_(was)

    def scaled(self, loss: Tensor) -> Tensor:
        """Return the loss with gradients that start multiplied by the factor."""
        if loss.grad_fn is None:
            return loss
        _PASS.end()
        return _Multiply.apply(loss, partial(self._scale_at_loss, [loss.grad_fn]), None)  # type: ignore[no-any-return, no-untyped-call]

    def end_step(self) -> None:
        """Scale again after a pass that built a graph."""
        self._keeps_unscaled = False

    # -- during backward ------------------------------------------------------------------
    def _scale_at_output(self, ends: list[Any]) -> float:
        """Return by what gradients are multiplied that enter the model at an output."""
        if _PASS.loss_scale != 1.0:
            return 1.0
        if torch.is_grad_enabled():
            # Gradients that a later pass takes through the graph of this one come into the model
            # at other places than its outputs: nothing is scaled up to the next step.
            self._keeps_unscaled = True
            return 1.0
        if self._keeps_unscaled:
            self._warn_unscaled()
            return 1.0
        if self._inside == 1.0:
            self._inside, self._task = self._factor(), torch_private.current_graph_task_id()
            _when_backward_ends(self._end)
        self._hook_edges(ends)
        ends.clear()
        return self._inside

    def _end(self) -> None:
        self._inside, self._task = 1.0, -1

    def _warn_unscaled(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(
                "amp in float16 does not scale gradients in a backward pass that follows one with "
                "create_graph=True in the same step, so that small ones may become zero: call "
                "optimizer.minimize(loss) or optimizer.scale(loss).backward(), or use bfloat16.",
                stacklevel=2,
            )

    def _hook_edges(self, ends: Iterable[Any]) -> None:
        """Register hooks that divide gradients where they leave the graph of the model for a leaf.

        Only there: what reaches the same leaf from elsewhere is in true units.
        """
        waiting, seen = list(ends), set(ends)
        while waiting:
            node = waiting.pop()
            if getattr(node, "inputs_of", None) is self:
                continue
            leaves = []
            for place, (child, _) in enumerate(node.next_functions):
                if type(child).__name__ == "AccumulateGrad":
                    leaves.append(place)
                elif child is not None and child not in seen:
                    seen.add(child)
                    waiting.append(child)
            if leaves and self not in node.metadata:  # forward passes may share a cast
                node.metadata[self] = True
                node.register_hook(partial(self._divide, leaves))

    def _divide(
        self, places: Sequence[int], inputs: tuple[Tensor | None, ...], _: Any
    ) -> tuple[Tensor | None, ...] | None:
        if self._inside == 1.0:
            return None
        divided = list(inputs)
        for place in places:
            gradient = divided[place]
            if gradient is not None:
                divided[place] = unscaled(gradient, self._inside)
        return tuple(divided)

    def _unscale_nested(self, grad: Tensor) -> Tensor:
        """Divide a gradient of a pass inside the scaled one: a checkpoint calls backward itself."""
        if self._inside == 1.0 or torch_private.current_graph_task_id() == self._task:
            return grad
        return unscaled(grad, self._inside)

    def _scale_at_loss(self, ends: list[Any]) -> float:
        scale = self._factor()
        _PASS.begin(scale)
        handles = [leaf.register_prehook(_unscale_all) for leaf in _others(ends)]
        ends.clear()

        def remove() -> None:
            for handle in handles:
                handle.remove()

        _when_backward_ends(remove)
        return scale


def _when_backward_ends(callback: Callable[[], None]) -> None:
    """Register a callback with autograd's engine for the end of the current pass."""
    torch_private.execution_engine.queue_callback(callback)


def _others(ends: Iterable[Any]) -> list[Any]:
    """Return the accumulators of leaves in a graph that have no hook yet."""
    waiting, seen, found = list(ends), set(), []
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if type(node).__name__ != "AccumulateGrad":
            waiting.extend(child for child, _ in node.next_functions)
        elif not hasattr(node.variable, _IS_HOOKED):
            found.append(node)
    return found


def _unscale_all(gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(map(_PASS.unscale, gradients))
