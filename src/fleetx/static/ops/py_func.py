"""The op `py_func`: Python functions of the user inside a program, with their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fleetx.static.graph.op_registry import Attr, no_infer, op
from fleetx.static.readers.lod_tensor import LoDTensor
from fleetx.static.shapes.lod import LoD, Lods, WithLod

# Ops refer to functions by their index here, so a program with such an op is bound to the process.
_functions: list[Callable[..., Any]] = []


def register_function(function: Callable[..., Any]) -> int:
    """Return the number under which ops find a function."""
    if not callable(function):
        raise TypeError(f"py_func takes a function, not {function!r}.")
    _functions.append(function)
    return len(_functions) - 1


def _as_argument(tensor: Tensor | None, lod: LoD | None = None) -> LoDTensor | None:
    if tensor is None:
        return None
    return LoDTensor(tensor.detach().cpu().numpy(), lod or ())


def _call(number: int, arguments: Sequence[Any], device: torch.device) -> list[Any]:
    """Return what the function returned, as tensors with their offsets."""
    returned = _functions[number](*arguments)
    if returned is None:
        return []
    values = returned if isinstance(returned, list | tuple) else [returned]
    results: list[Any] = []
    for value in values:
        if value is None:
            results.append(None)
            continue
        tensor = torch.from_numpy(np.array(value)).to(device)
        lod = value.lod() if isinstance(value, LoDTensor) else None
        results.append(WithLod(tensor, lod) if lod else tensor)
    return results


class _Differentiable(torch.autograd.Function):
    """A function with a function for its gradient: of inputs, outputs and gradients of outputs."""

    @staticmethod
    def forward(ctx: Any, numbers: tuple[int, int], skip: Sequence[int], *xs: Tensor) -> Any:
        results = _call(numbers[0], [_as_argument(x) for x in xs], xs[0].device)
        outs = [r.tensor if isinstance(r, WithLod) else r for r in results]
        ctx.numbers, ctx.skip, ctx.count = numbers, set(skip), len(xs)
        ctx.save_for_backward(*xs, *outs)
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        kept = [t for i, t in enumerate(ctx.saved_tensors) if i not in ctx.skip]
        arguments = [_as_argument(t) for t in (*kept, *grads)]
        found = _call(ctx.numbers[1], arguments, grads[0].device)
        found += [None] * (ctx.count - len(found))
        tensors = [f.tensor if isinstance(f, WithLod) else f for f in found]
        return (None, None, *tensors)


@op(
    "py_func",
    inputs="X*?",
    outputs="Out*?",
    attrs={"backward_skip_vars": Attr("STRINGS", [])},
    infer=no_infer,
    side_effect=True,
    random=True,
    lod="none",
)
def py_func(
    xs: list[Tensor],
    *,
    forward_callable_id: int = 0,
    backward_callable_id: int = -1,
    backward_skip_positions: list[int] = [],
    lod: Lods,
    ctx: Any,
) -> list[Any]:
    """Call the user's function on the inputs."""
    if backward_callable_id >= 0 and any(x.requires_grad for x in xs):
        numbers = (forward_callable_id, backward_callable_id)
        return list(_Differentiable.apply(numbers, backward_skip_positions, *xs))
    lods = (lod or {}).get("X") or [None] * len(xs)
    arguments = [_as_argument(x, own) for x, own in zip(xs, lods, strict=True)]
    return _call(forward_callable_id, arguments, ctx.device)
