"""Saving the trained parameters and tables of a worker's program.

Rows are saved in a form that needs no servers: a table of declared size becomes an ordinary
parameter again; for a growing table, ids and rows are saved, and look-ups in them replace look-ups
in the table.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from fleetx.checkpoint.atomic import inside
from fleetx.fleet.servers.program_link import ServerLink
from fleetx.fleet.servers.worker_program import KEYS, ROWS
from fleetx.ps.tables.table_files import SavedTable
from fleetx.ps.tables.table_spec import SparseTableSpec
from fleetx.static import io
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.program import Program
from fleetx.static.run.compiled_program import plain_program
from fleetx.static.run.scope import global_scope


@contextlib.contextmanager
def _in_scope(values: dict[str, Tensor]) -> Iterator[None]:
    """Set variables to values while something is saved."""
    scope = global_scope()
    before = {name: scope.var(name).value for name in values}
    try:
        for name, value in values.items():
            scope.var(name).value = value
        yield
    finally:
        for name, value in before.items():
            scope.var(name).value = value


def _whole(link: ServerLink, names: Sequence[str]) -> dict[str, Tensor]:
    return {n: link.whole_table(n) for n in names if link.tables.sparse[n].given}


def save_parameters(executor: Any, dirname: str, program: Any, link: ServerLink) -> None:
    """Write every parameter into a file of its name; growing tables have none."""
    program = plain_program(program)
    link.refresh()
    tables = link.tables.sparse
    growing = {name for name, table in tables.items() if not table.given}
    made = [n + end for n in tables for end in (ROWS, KEYS)]
    chosen = [
        var
        for var in program.list_vars()
        if io.is_persistable(var) and var.name not in growing and var.name not in made
    ]
    with _in_scope(_whole(link, [n for n in tables if n not in growing])):
        io.save_vars(executor, dirname, program, vars=chosen)


def save_model(
    executor: Any,
    dirname: str,
    feeds: Sequence[str],
    targets: Sequence[Any],
    program: Any,
    link: ServerLink,
    *,
    export_for_deployment: bool,
) -> Any:
    """Write an inference model, embeddings included."""
    program = plain_program(program).clone()
    program.binding.servers = None
    link.refresh()
    tables = link.tables.sparse
    values = _whole(link, list(tables))
    growing = [name for name, table in tables.items() if not table.given]
    for name, keys, rows in _saved_rows(link, growing, dirname):
        _look_up_saved(program, name, rows, tables[name].spec)
        values |= {name + KEYS: keys, name + ROWS: rows}
    names = [t if isinstance(t, str) else t.name for t in targets]
    with _in_scope(values):
        return io.save_inference_dir(
            dirname,
            list(feeds),
            [program.global_block().var(n) for n in names],
            executor,
            program,
            export_for_deployment=export_for_deployment,
        )


def _look_up_saved(program: Program, name: str, rows: Tensor, spec: SparseTableSpec) -> None:
    block = program.global_block()
    dtype = block.var(name).dtype
    described = ""
    if spec.entry is None:
        described = json.dumps({"initializer": asdict(spec.initializer), "seed": spec.row_seed})
    block.create_var(name=name + KEYS, shape=[len(rows)], dtype=VarType.INT64, persistable=True)
    block.create_var(name=name + ROWS, shape=list(rows.shape), dtype=dtype, persistable=True)
    for i, op in reversed(list(enumerate(block.ops))):
        if op.type in ("lookup_table", "lookup_table_v2") and op.input("W") == [name]:
            inputs = {"Keys": [name + KEYS], "Rows": [name + ROWS], "Ids": op.input("Ids")}
            attrs = {
                "squeeze": op.type == "lookup_table",
                "padding_idx": op.attr("padding_idx"),
                "first_rows": described,
                "op_role": op.op_role,
            }
            block.remove_op(i)
            block.insert_op(
                i,
                type="lookup_saved_rows",
                inputs=inputs,
                outputs={"Out": op.output("Out")},
                attrs=attrs,
            )
    block.vars.pop(name)


def _saved_rows(link: ServerLink, names: Sequence[str], dirname: str) -> Iterator[Any]:
    """Iterate over (table, sorted ids, rows) of growing tables, as servers write them."""
    if not names:
        return
    os.makedirs(dirname, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=dirname) as folder:
        link.mode.save(folder)
        for name in names:
            parts = [state for _, state in SavedTable(inside(folder, name)).all_parts()]
            ids = torch.cat([state["ids"] for state in parts])
            rows = torch.cat([state["Param"] for state in parts])
            order = ids.argsort()
            yield name, ids[order], rows[order]
