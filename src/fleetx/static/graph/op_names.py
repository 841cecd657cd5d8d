"""The names that an op reads and writes, including those of its inner blocks."""

from __future__ import annotations

from fleetx.static.graph.block import Block
from fleetx.static.graph.operator import Operator


def sub_blocks(op: Operator) -> list[Block]:
    """Return the inner blocks of an op, such as the body of `while`."""
    found = []
    for value in op.attrs.values():
        if isinstance(value, Block):
            found.append(value)
        elif isinstance(value, list) and value and all(isinstance(v, Block) for v in value):
            found.extend(value)
    return found


def reads_of(op: Operator) -> list[str]:
    """Return the names that an op reads, including what its inner blocks read from outside."""
    names = list(op.input_arg_names)
    for block in sub_blocks(op):
        made: set[str] = set(block.vars)
        for inner in block.ops:
            names.extend(n for n in reads_of(inner) if n not in made)
            made.update(inner.output_arg_names)
    return names


def writes_of(op: Operator) -> list[str]:
    """Return the names that an op writes, including what its inner blocks write outside."""
    names = list(op.output_arg_names)
    for block in sub_blocks(op):
        names.extend(n for inner in block.ops for n in writes_of(inner) if n not in block.vars)
    return names
