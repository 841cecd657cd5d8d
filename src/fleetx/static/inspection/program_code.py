"""Programs as lines of code: variables with types, ops with inputs, outputs and attributes."""

from __future__ import annotations

import sys
from typing import Any, TextIO

from fleetx.checkpoint.program_desc import AttrType
from fleetx.exports import export_defined
from fleetx.static.graph.block import Block
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.operator import Operator
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Parameter, Variable
from fleetx.static.protobuf.desc_view import OpDescView


def get_indent_space(indent: int, space_num: int = 4) -> str:
    """Return the indentation of a line at a depth."""
    return " " * (indent * space_num)


def variable_to_code(var: Variable) -> str:
    """Return a variable as a line: kind, name, type and shape."""
    text = f"{var.name} : fluid.{var.type}"
    if var.type in (VarType.SELECTED_ROWS, VarType.LOD_TENSOR):
        text += f".shape{var.shape}.astype({var.dtype})"
    else:
        text += ")"
    kind = "var"
    if isinstance(var, Parameter):
        kind = "trainable parameter" if var.trainable else "parameter"
    return f"{'persist ' if var.persistable else ''}{kind} {text}"


def op_to_code(op: Operator, skip_op_callstack: bool = True) -> str:
    """Return an op as a line: outputs, type, inputs and attributes."""
    desc = OpDescView(op)
    outputs = ", ".join(f"{slot}={op.output(slot)}" for slot in sorted(op.output_names))
    inputs = ", ".join(f"{slot}={op.input(slot)}" for slot in sorted(op.input_names))
    names = sorted(n for n in op.attr_names if not skip_op_callstack or n != "op_callstack")
    attrs = ", ".join(f"{name} = {_attr(desc, name)}" for name in names)
    call = f"{op.type}(inputs={{{inputs}}}, {attrs})"
    return f"{{{outputs}}} = {call}" if outputs else call


def _attr(desc: OpDescView, name: str) -> Any:
    kind = desc.attr_type(name)
    if kind == AttrType.BLOCK:
        return f"block[{desc._block_attr_id(name)}]"
    if kind == AttrType.BLOCKS:
        return f"blocks{desc._blocks_attr_ids(name)}"
    return desc.attr(name)


def block_to_code(
    block: Block, block_idx: int, fout: TextIO | None = None, skip_op_callstack: bool = False
) -> None:
    """Print a block: variables by name, then ops."""
    out = sys.stdout if fout is None else fout
    indent = get_indent_space(1)
    print(f"{{ // block {block_idx}", file=out)
    for name in sorted(block.vars):
        print(indent + variable_to_code(block.vars[name]), file=out)
    if block.vars:
        print(file=out)
    for op in block.ops:
        print(indent + op_to_code(op, skip_op_callstack), file=out)
    print("}", file=out)


def program_to_code(
    prog: Program, fout: TextIO | None = None, skip_op_callstack: bool = True
) -> None:
    """Print the blocks of a program."""
    for index, block in enumerate(prog.blocks):
        block_to_code(block, index, fout, skip_op_callstack)


export_defined(globals())
