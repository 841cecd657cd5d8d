"""Shape inference for ops on variable-length sequences: row counts are known at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fleetx.static.graph.dtypes import convert_dtype
from fleetx.static.shapes.infer_shape import ShapeError

if TYPE_CHECKING:
    from fleetx.static.graph.block import Block
    from fleetx.static.graph.operator import Operator
    from fleetx.static.graph.variable import Variable

Infer = Callable[[Any, Any], None]


def input_var(op: Operator, block: Block, slot: str) -> Variable:
    """Return the first variable in an input slot."""
    return block.var_recursive(op.input(slot)[0])


def set_output(
    op: Operator,
    block: Block,
    slot: str,
    shape: Sequence[int],
    dtype: Any,
    lod_level: int = 0,
) -> None:
    """Set shape, element type and LoD level of the variables in an output slot."""
    for name in op.output(slot):
        var = block.find_var(name)
        if var is not None:
            var.set_inferred(tuple(shape), convert_dtype(dtype))
            var._lod_level = lod_level


def rows_like(
    slot: str, *outs: str, level: Callable[[int], int] = lambda n: n, same_number: bool = False
) -> Infer:
    """Return a rule: outputs have the row shape of an input, and its number of rows only if
    requested; `level` maps LoD levels."""

    def infer(op: Operator, block: Block) -> None:
        var = input_var(op, block, slot)
        if var._shape is not None:
            shape = var.shape if same_number else (-1, *var.shape[1:])
            for out in outs or ("Out",):
                set_output(op, block, out, shape, var.dtype, level(var.lod_level))

    return infer


def always(shape: Sequence[int], dtype: Any) -> Infer:
    """Return a rule: the output has a fixed shape and type."""

    def infer(op: Operator, block: Block) -> None:
        set_output(op, block, "Out", shape, dtype)

    return infer


def need_rank(op: Operator, var: Variable, rank: int) -> None:
    """Reject an input with fewer dimensions than the op needs."""
    if len(var.shape) < rank:
        raise ShapeError(
            f"op {op.type!r} needs an input of at least {rank} dimensions, "
            f"but {var.name!r} has shape {var.shape}."
        )
