"""Find ops of a block by what they read and write, and look-ups in a distributed table."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from fleetx.static.graph.operator import Operator
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Variable

_LOOKUPS = ("lookup_table", "lookup_table_v2")


def delete_ops(block: Any, ops: Iterable[Operator]) -> None:
    """Remove ops from a block."""
    for op in ops:
        block.remove_op(list(block.ops).index(op))


def find_op_by_input_arg(block: Any, arg_name: str) -> int:
    """Return the index of the first op that reads a variable, -1 if none does."""
    return next((i for i, op in enumerate(block.ops) if arg_name in op.input_arg_names), -1)


def find_op_by_output_arg(block: Any, arg_name: str, reverse: bool = False) -> int:
    """Return the index of the first (or last) op that writes a variable, -1 if none does."""
    found = [i for i, op in enumerate(block.ops) if arg_name in op.output_arg_names]
    return found[-1 if reverse else 0] if found else -1


def find_true_prev_op(ops: Iterable[Operator], cur_op: Operator, var_name: str) -> Operator | None:
    """Return the only op before another that writes a variable, None if there is none."""
    before = itertools.takewhile(lambda op: op is not cur_op, ops)
    found = [op for op in before if var_name in op.output_arg_names]
    if len(found) > 1:
        raise ValueError(f"{len(found)} ops write {var_name!r} before op {cur_op.type!r}.")
    return found[0] if found else None


def find_true_post_op(
    ops: Sequence[Operator], cur_op: Operator, var_name: str
) -> list[Operator] | None:
    """Return the ops after another that read a variable, None if there are none."""
    place = next((i for i, op in enumerate(ops) if op is cur_op), len(ops))
    return [op for op in ops[place + 1 :] if var_name in op.input_arg_names] or None


def find_op_index(block_desc: Any, cur_op_desc: Any) -> int:
    """Return the index of an op's description in that of its block, -1 if it is not there."""
    places = range(block_desc.op_size())
    return next((i for i in places if block_desc.op(i) == cur_op_desc), -1)


def find_distributed_lookup_table(program: Program) -> str | None:
    """Return the name of the table whose look-ups are distributed, None if there is none."""
    names = {op.input("W")[0] for op in _lookups(program) if op.attr("is_distributed")}
    if len(names) > 1:
        raise RuntimeError(
            f"look-ups with is_distributed=True read the tables {', '.join(sorted(names))}; a "
            "program may have only one distributed table."
        )
    return names.pop() if names else None


def find_distributed_lookup_table_inputs(program: Program, table_name: str) -> list[Variable]:
    """Return the variables with the ids of a table."""
    return _variables(program, table_name, "input", "Ids")


def find_distributed_lookup_table_outputs(program: Program, table_name: str) -> list[Variable]:
    """Return the variables with the rows of a table."""
    return _variables(program, table_name, "output", "Out")


def _lookups(program: Program) -> list[Operator]:
    return [op for op in program.global_block().ops if op.type in _LOOKUPS]


def _variables(program: Program, table: str, side: str, slot: str) -> list[Variable]:
    block = program.global_block()
    ops = [op for op in _lookups(program) if op.input("W")[0] == table]
    return [block.var(name) for op in ops for name in getattr(op, side)(slot)]
