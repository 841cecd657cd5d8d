"""An elementwise operation and an activation as one op, in either order."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fleetx.static.graph.op_registry import Attr, op
from fleetx.static.ops.elementwise import align

_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "elementwise_add": torch.add,
    "elementwise_mul": torch.mul,
}
_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}


@op(
    "fused_elemwise_activation",
    inputs="X Y",
    outputs="Out IntermediateOut?",
    attrs={
        "axis": -1,
        "scale": 0.0,
        "save_intermediate_out": False,
        "functor_list": Attr("STRINGS", []),
    },
)
def fused_elemwise_activation(
    x: Tensor,
    y: Tensor,
    *,
    axis: int,
    scale: float,
    functor_list: list[str],
) -> tuple[Tensor, Tensor]:
    """Return binary(X, unary(Y)) or unary(binary(X, Y)), and what is inside the parentheses."""
    unary = {**_UNARY, "scale": lambda value: value * scale}
    first, second = functor_list if len(functor_list) == 2 else ("", "")
    if first in _BINARY and second in unary:
        inner = unary[second](y)
        return _BINARY[first](*align(x, inner, axis if axis >= 0 else _last(x, y))), inner
    if first in unary and second in _BINARY:
        inner = _BINARY[second](*align(x, y, axis if axis >= 0 else _last(x, y)))
        return unary[first](inner), inner
    raise ValueError(
        f"functor_list is one of {', '.join(_BINARY)} and one of {', '.join(unary)}, "
        f"not {functor_list}."
    )


def _last(x: Tensor, y: Tensor) -> int:
    return abs(x.dim() - y.dim())
