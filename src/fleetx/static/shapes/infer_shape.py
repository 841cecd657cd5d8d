"""Shape and type inference: an op's own torch function, run on meta tensors.

An unknown dimension (-1) is given two different sizes in two runs; where the results differ, the
result is unknown too. The sizes have many divisors, so that reshapes of the batch are valid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fleetx.static.errors import ShapeError
from fleetx.static.graph.dtypes import VarType, convert_dtype, to_torch
from fleetx.static.graph.op_registry import EMPTY_NAME, OpDef, get_op
from fleetx.static.shapes.meta_run import without_loading_dynamo

if TYPE_CHECKING:
    from fleetx.static.graph.block import Block
    from fleetx.static.graph.operator import Operator

_STAND_INS = (5040, 7560)


class MetaContext:
    """The context of ops in shape inference: no scope, no values, the meta device."""

    device = torch.device("meta")
    is_meta = True
    generator = None
    grad_enabled = False


_cache: dict[Any, list[list[tuple[tuple[int, ...], VarType] | None]]] = {}
META = MetaContext()


def _freeze(value: Any) -> Any:
    return tuple(_freeze(v) for v in value) if isinstance(value, list | tuple) else value


def _gather(op: Operator, block: Block) -> list[Any]:
    """Return per input slot a list of (shape, dtype) of its variables."""
    found = []
    for slot in get_op(op.type).inputs:
        row: list[Any] = []
        for name in op.input(slot.name):
            if name == EMPTY_NAME:
                row.append(None)
                continue
            var = block.var_recursive(name)
            if var.dtype is None or var.shape is None:
                return []
            row.append((tuple(var.shape), var.dtype))
        found.append((slot, tuple(row)))
    return found


def _run(op_def: OpDef, slots: list[Any], attrs: dict[str, Any], stand_in: int) -> list[list[Any]]:
    args: list[Any] = []
    for slot, row in slots:
        tensors = [
            None
            if item is None
            else torch.empty(
                [stand_in if d < 0 else d for d in item[0]], dtype=to_torch(item[1]), device="meta"
            )
            for item in row
        ]
        args.append(tensors if slot.many else (tensors[0] if tensors else None))
    extra: dict[str, Any] = {}
    if op_def.needs_ctx:
        extra["ctx"] = META
    if op_def.needs_lod:
        extra["lod"] = None
    result = op_def.bind(attrs)(*args, **extra)
    if len(op_def.outputs) == 1:
        result = (result,)
    return [
        [None if t is None else (tuple(t.shape), convert_dtype(t.dtype)) for t in value]
        if isinstance(value, list)
        else [None if value is None else (tuple(value.shape), convert_dtype(value.dtype))]
        for value in result
    ]


def _merge(first: list[list[Any]], second: list[list[Any]]) -> list[list[Any]]:
    merged = []
    for row_a, row_b in zip(first, second, strict=True):
        row: list[Any] = []
        for a, b in zip(row_a, row_b, strict=True):
            if a is None or b is None:
                row.append(None)
            else:
                shape = tuple(x if x == y else -1 for x, y in zip(a[0], b[0], strict=True))
                row.append((shape, a[1]))
        merged.append(row)
    return merged


def describe_inputs(op: Operator, block: Block) -> str:
    """Return "X 'x' of shape (-1, 32) and Y ..." for messages."""
    parts = []
    for slot in get_op(op.type).inputs:
        for name in op.input(slot.name):
            var = block.find_var(name)
            if var is not None:
                parts.append(f"{slot.name} {name!r} of shape {tuple(var.shape or ())}")
    return " and ".join(parts)


def infer_shape(op: Operator, block: Block) -> None:
    """Set shape and type of the op's output variables, or raise a `ShapeError`."""
    op_def = get_op(op.type)
    if op_def.infer is not None:
        op_def.infer(op, block)
    else:
        infer_by_running(op, block)
    if op_def.lod != "none":
        _share_lod_level(op, block)


def _share_lod_level(op: Operator, block: Block) -> None:
    """Propagate the LoD level of a variable-length input to outputs with its rows."""
    inputs = (block.find_var(n) for names in op.inputs.values() for n in names)
    source = next((var for var in inputs if var is not None and var._lod_level), None)
    if source is None:
        return
    for names in op.outputs.values():
        for name in names:
            var = block.find_var(name)
            if var is not None and not var.is_data and var.shape[:1] == source.shape[:1]:
                var._lod_level = source._lod_level


def _infer_results(op_def: OpDef, slots: list[Any], attrs: dict[str, Any]) -> list[list[Any]]:
    """Return shapes and types of the outputs; unknown dimensions may have to equal known ones."""
    shapes = [item[0] for _, row in slots for item in row if item]
    if not any(d < 0 for shape in shapes for d in shape):
        return _run(op_def, slots, attrs, _STAND_INS[0])
    try:
        results = [_run(op_def, slots, attrs, stand_in) for stand_in in _STAND_INS]
    except (RuntimeError, ValueError):
        # The rows of one input may be unknown and those of another known: try the known number.
        rows = {shape[0] for shape in shapes if shape}
        if len(rows) != 2 or -1 not in rows:
            raise
        return _run(op_def, slots, attrs, max(rows))
    return _merge(*results)


def infer_by_running(op: Operator, block: Block) -> None:
    """Infer by running the op's function on meta tensors; an `infer` function may fall back on
    it."""
    op_def = get_op(op.type)
    slots = _gather(op, block)
    if not slots and op_def.inputs:
        return  # an input has no shape (arrays, readers): known only at run time
    attrs = {k: v for k, v in op.attrs.items() if k in op_def.names}
    key: Any = (op.type, tuple(row for _, row in slots), _freeze(sorted(attrs.items())))
    try:
        cached = _cache.get(key)
    except TypeError:  # an attribute that cannot be hashed, such as a function
        key, cached = None, None
    if cached is None:
        try:
            with torch.no_grad(), without_loading_dynamo():
                cached = _infer_results(op_def, slots, attrs)
        except (RuntimeError, ValueError, IndexError, TypeError, AssertionError) as error:
            reason = str(error).replace(str(_STAND_INS[0]), "-1").strip().splitlines()
            raise ShapeError(
                f"op {op.type!r} does not accept {describe_inputs(op, block)}: "
                f"{reason[0] if reason else type(error).__name__}"
            ) from error
        if key is not None:
            _cache[key] = cached
    for slot, row in zip(op_def.outputs, cached, strict=True):
        for name, item in zip(op.output(slot.name), row, strict=False):
            var = block.find_var(name)
            if item is None or var is None:
                continue
            var.set_inferred(item[0], item[1])
