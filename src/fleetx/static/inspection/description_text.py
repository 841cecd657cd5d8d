"""Programs as text from their protobuf descriptions: a line per variable and per op."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static.graph.block import Block
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.program import Program
from fleetx.static.protobuf.serialize import program_to_desc

# The fields of an attribute in a description, by its type.
_FIELDS = (
    *("i", "f", "s", "ints", "floats", "strings", "b", "bools"),
    *("block_idx", "l", "blocks_idx", "longs"),
)
_DTYPES = ["bool", "int16", "int32", "int64", "float16", "float32", "float64"]


def repr_data_type(type: int) -> str:
    """Return the name of an element type."""
    return _DTYPES[type] if type < len(_DTYPES) else VarType(type).name.lower()


def repr_tensor(proto: Any) -> str:
    """Return the element type and shape of a tensor's description."""
    return f"tensor(type={repr_data_type(proto.data_type)}, shape={list(proto.dims)})"


def repr_lodtensor(proto: Any) -> str | None:
    """Return a line for a description of a tensor; None for other kinds."""
    if proto.type.type != VarType.LOD_TENSOR:
        return None
    level = proto.type.lod_tensor.lod_level
    text = repr_tensor(proto.type.lod_tensor.tensor)
    if level:
        return f"LoDTensor {proto.name} (level={level}, {text})"
    return f"Tensor {proto.name} ({text})"


def repr_selected_rows(proto: Any) -> str | None:
    """Return a line for a description of selected rows; None for other kinds."""
    if proto.type.type != VarType.SELECTED_ROWS:
        return None
    return f"SelectedRows {proto.name} ({repr_tensor(proto.type.selected_rows)})"


def repr_tensor_array(proto: Any) -> str | None:
    """Return a line for a description of an array; None for other kinds."""
    if proto.type.type != VarType.LOD_TENSOR_ARRAY:
        return None
    body = proto.type.tensor_array
    return f"TensorArray {proto.name} (level={body.lod_level}, {repr_tensor(body.tensor)})"


def repr_var(vardesc: Any) -> str:
    """Return a line for the description of a variable."""
    for describe in (repr_lodtensor, repr_selected_rows, repr_tensor_array):
        text = describe(vardesc)
        if text is not None:
            return text
    return f"{VarType(vardesc.type.type).name} {vardesc.name}"


def repr_attr(desc: Any) -> tuple[str, tuple[str, Any]]:
    """Return an attribute as text, and as (name, value)."""
    value = getattr(desc, _FIELDS[desc.type])
    if desc.name == "dtype":
        value = repr_data_type(value)
    elif not isinstance(value, bool | int | float | str):
        value = list(value)
    return f"{desc.name}={value}", (desc.name, value)


def repr_op(opdesc: Any) -> str:
    """Return a line for the description of an op."""
    outputs = [_arguments(var) for var in opdesc.outputs]
    attrs = [repr_attr(attr) for attr in opdesc.attrs]
    if opdesc.type == "fill_constant":
        values = dict(pair for _, pair in attrs)
        return f"{','.join(outputs)} = {values['value']} [shape={values['shape']}]"
    inputs = ", ".join(f"{var.parameter}={_arguments(var)}" for var in opdesc.inputs)
    target = ", is_target" if opdesc.is_target else ""
    text = ",".join(text for text, _ in attrs)
    return f"{', '.join(outputs)} = {opdesc.type}({inputs}{target}) [{{{text}}}]"


def _arguments(var: Any) -> str:
    names = list(var.arguments)
    return names[0] if len(names) == 1 else str(names)


def pprint_block_codes(block_desc: Any, show_backward: bool = False) -> str:
    """Return the variables and ops of a block as text; the backward pass only if requested.

    Args:
        block_desc: a Block, or its description.
        show_backward: whether gradients are shown.
    """
    desc = block_desc
    if isinstance(block_desc, Block):
        desc = program_to_desc(block_desc.program).blocks[block_desc.idx]
    shown = [var for var in desc.vars if show_backward or "@GRAD" not in var.name]
    ops = [op for op in desc.ops if show_backward or not _is_backward(op)]
    return (
        f"// block-{desc.idx}  parent-{desc.parent_idx}\n// variables\n"
        + "\n".join(map(repr_var, shown))
        + "\n\n// operators\n"
        + "\n".join(map(repr_op, ops))
        + "\n"
    )


def pprint_program_codes(program_desc: Program) -> str:
    """Return the blocks of a program as text, without the backward pass."""
    return "\n".join(map(pprint_block_codes, program_desc.blocks))


def _is_backward(op: Any) -> bool:
    if op.type.endswith("_grad"):
        return True
    slots = [*op.inputs, *op.outputs]
    return any("@GRAD" in name for slot in slots for name in (slot.parameter, *slot.arguments))


export_defined(globals())
