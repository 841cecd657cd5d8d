"""Comparisons, logic and bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_registry import detached_op, op
from fleetx.static.ops.elementwise import along_axis
from fleetx.static.shapes.infer_rules import always, broadcast, same_as

for _name, _function in {
    "equal": torch.eq,
    "not_equal": torch.ne,
    "less_than": torch.lt,
    "less_equal": torch.le,
    "greater_than": torch.gt,
    "greater_equal": torch.ge,
}.items():
    op(
        _name,
        inputs="X Y",
        attrs={"axis": -1, "force_cpu": False},
        grad=None,
        infer=broadcast(VarType.BOOL),
    )(along_axis(_function))


_LOGIC: dict[str, Callable[..., Tensor]] = {
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
}
_BITS: dict[str, Callable[..., Tensor]] = {
    "bitwise_and": torch.bitwise_and,
    "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor,
}
for _table, _dtype in ((_LOGIC, VarType.BOOL), (_BITS, None)):
    for _name, _pair in _table.items():
        op(_name, inputs="X Y", grad=None, infer=broadcast(_dtype))(lambda x, y, f=_pair: f(x, y))


op("logical_not", grad=None, infer=same_as(dtype=VarType.BOOL))(lambda x: torch.logical_not(x))
op("bitwise_not", grad=None, infer=same_as())(lambda x: torch.bitwise_not(x))


_flag = always((1,), VarType.BOOL)


@detached_op("equal_all", inputs="X Y", infer=_flag)
def equal_all(x: Tensor, y: Tensor) -> Tensor:
    """Whether both are the same tensor."""
    return torch.tensor([torch.equal(x, y)], device=x.device)


@detached_op("equal_reduce", inputs="X Y", attrs={"axis": -1}, infer=_flag)
def equal_reduce(x: Tensor, y: Tensor) -> Tensor:
    """Whether all elements are equal."""
    return torch.eq(x, y).all().reshape(1)


def _tolerance(attr: Any, tensor: Tensor | None) -> float:
    return float(attr) if tensor is None else float(tensor.item())


@op("isclose", inputs="Input Other Rtol? Atol?", grad=None)
def isclose(
    x: Tensor,
    y: Tensor,
    rtol_tensor: Tensor | None,
    atol_tensor: Tensor | None,
    *,
    rtol: Any = 1e-5,
    atol: Any = 1e-8,
    equal_nan: bool = False,
) -> Tensor:
    """Where |Input - Other| <= atol + rtol * |Other|."""
    relative, absolute = _tolerance(rtol, rtol_tensor), _tolerance(atol, atol_tensor)
    return torch.isclose(x, y, relative, absolute, equal_nan)


@detached_op(
    "allclose", inputs="Input Other Rtol? Atol?", attrs=isclose.__kwdefaults__, infer=_flag
)
def allclose(
    x: Tensor,
    y: Tensor,
    rtol_tensor: Tensor | None,
    atol_tensor: Tensor | None,
    **tolerances: Any,
) -> Tensor:
    """Whether that holds everywhere."""
    return isclose(x, y, rtol_tensor, atol_tensor, **tolerances).all().reshape(1)
