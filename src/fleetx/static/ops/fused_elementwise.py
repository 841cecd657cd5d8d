"""Addition or multiplication together with an activation, as one op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fleetx.static.graph.op_registry import op
from fleetx.static.ops.elementwise import align
from fleetx.static.shapes.infer_rules import broadcast, input_var, refuse, set_output

_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "elementwise_add": torch.add,
    "elementwise_mul": torch.mul,
}
_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "gelu": torch.nn.functional.gelu,
}


def _infer(op: Any, block: Any) -> None:
    names = op.attr("functor_list")
    unary = {*_UNARY, "scale"}
    if (
        len(names) != 2
        or {*names} - unary - {*_BINARY}
        or (names[0] in unary) == (names[1] in unary)
    ):
        raise refuse(
            op,
            block,
            f"functor_list must be one of {', '.join(_BINARY)} and one of "
            f"{', '.join(sorted(unary))}, the outer one first, not {names}.",
        )
    broadcast()(op, block)
    source = input_var(op, block, "Y" if names[0] in _BINARY else "X")
    if source is not None:
        set_output(op, block, "IntermediateOut", source.shape, source.dtype)


@op(
    "fused_elemwise_activation",
    inputs="X Y",
    outputs="Out IntermediateOut?",
    attrs={"save_intermediate_out": False},
    infer=_infer,
)
def fused_elemwise_activation(
    x: Tensor, y: Tensor, *, axis: int = -1, scale: float = 0.0, functor_list: list[str] = []
) -> tuple[Tensor, Tensor]:
    """Return unary(binary(x, y)) or binary(x, unary(y)), and the inner result.

    The outer function stands first: ["relu", "elementwise_add"] is relu(x + y).
    """

    def apply(name: str, *values: Tensor) -> Tensor:
        if name in _BINARY:
            pair = values if axis == -1 else align(values[0], values[1], axis)
            return _BINARY[name](*pair)
        return values[0] * scale if name == "scale" else _UNARY[name](values[0])

    outer, inner = functor_list
    if inner in _BINARY:
        between = apply(inner, x, y)
        return apply(outer, between), between
    between = apply(inner, y)
    return apply(outer, x, between), between
