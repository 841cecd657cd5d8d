"""Programs of a job with parameter servers: what `minimize` left, rewritten for workers.

A worker's program has no updates. Its look-ups in sparse tables work on fetched rows, and it ends
with `send` (gradients, of all dense parameters in one op), `send_barrier` in synchronous training,
and `recv` (parameters). In geo training the updates of dense parameters stay. The startup program
gives the first values to the servers and takes what all agree on. The backward pass is left as it
is, so that it still is one call of autograd.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.fleet.servers.early_ids import move_to_front
from fleetx.fleet.servers.program_tables import ProgramTables, RowTable, update_ops
from fleetx.ps.modes.server_mode import ServerMode
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.operator import Operator, OpRole
from fleetx.static.graph.program import Program, reads_of, writes_of
from fleetx.static.graph.variable import Parameter

ROWS, KEYS, INDEX = "@ROWS", "@IDS", "@INDEX"
_SENDS = OpRole.Optimize  # so that clone(for_test=True) leaves them out


def write_worker(
    main: Program,
    startup: Program,
    tables: ProgramTables,
    mode: ServerMode,
    endpoints: Sequence[str],
    *,
    worker: int,
) -> None:
    """Turn a completed training program and its startup program into a worker's."""
    gradients = {op.input("Param")[0]: _raw_gradient(main, op) for op in update_ops(main)}
    if mode.updates_on_worker:
        _drop_updates(main, startup, set(tables.sparse))
    else:
        _drop_updates(main, startup, None, keep=tables.rate)
    for name in tables.sparse:
        _use_rows(main, name, tables.sparse[name], gradients[name])
    _insert_pulls(main, tables.sparse)
    _append_sends(main, tables, mode, gradients, list(endpoints))
    _write_startup(startup, tables, worker)
    for program in (main, startup):
        program.is_distributed = True
        program.bump_version()


def _raw_gradient(program: Program, update: Operator) -> str:
    """Return the gradient of an update's parameter as the backward pass makes it."""
    wanted = update.input("Param")[0] + "@GRAD"
    last = _last_backward(program)
    made = {n for op in program.global_block().ops[: last + 1] for n in op.output_arg_names}
    return wanted if wanted in made else update.input("Grad")[0]


def _last_backward(program: Program) -> int:
    ops = program.global_block().ops
    return max((i for i, op in enumerate(ops) if op.backward_id is not None), default=len(ops))


def _drop_updates(
    main: Program, startup: Program, of: set[str] | None, keep: str | None = None
) -> None:
    """Remove updates (of some parameters), with their state; the learning rate stays."""
    block = main.global_block()
    last = _last_backward(main)
    after = block.ops[last + 1 :]
    if of is None:
        wanted = {keep}
        kept: list[Operator] = []
        for op in reversed(after):
            if op.op_role & OpRole.LRSched and wanted & set(writes_of(op)):
                kept.append(op)
                wanted.update(reads_of(op))
        kept.reverse()
    else:
        kept = [op for op in after if not of & set(op.input("Param"))]
    left = {id(op) for op in kept}
    gone = [op for op in after if id(op) not in left]
    block.ops = block.ops[: last + 1] + kept
    used = {n for b in main.blocks for op in b.ops for n in (*reads_of(op), *writes_of(op))}
    names = {n for op in gone for n in (*reads_of(op), *writes_of(op))} - used - {keep}
    for name in names:
        var = block.vars.get(name)
        if var is not None and not isinstance(var, Parameter):
            del block.vars[name]
            _drop_variable(startup, name)


def _drop_variable(startup: Program, name: str) -> None:
    block = startup.global_block()
    block.ops = [op for op in block.ops if name not in op.output_arg_names]
    block.vars.pop(name, None)


# -- rows -----------------------------------------------------------------------------------------
def use_served_rows(program: Program, tables: dict[str, RowTable]) -> None:
    """Make the look-ups of a program without a backward pass fetch rows from servers."""
    for name, table in tables.items():
        _use_rows(program, name, table, name + "@GRAD")
    _insert_pulls(program, tables)
    program.bump_version()


def _use_rows(main: Program, name: str, table: RowTable, gradient: str) -> None:
    """Make the look-ups in a table, and their gradients, work on fetched rows."""
    block = main.global_block()
    block.ops = move_to_front(block.ops, table.lookups)
    dim, dtype = table.spec.dim, block.var(name).dtype
    rows = block.create_var(name=name + ROWS, shape=[-1, dim], dtype=dtype, stop_gradient=False)
    block.create_var(name=name + KEYS, shape=[-1], dtype=VarType.INT64, stop_gradient=True)
    lookups = {op.uid for op in table.lookups}
    for op in block.ops:
        if lookups & {op.uid, op.forward_uid, op.recomputes}:
            ids = op.input("Ids")[0]
            origin = block.var(ids)
            index = index_name(name, ids)
            if not block.has_var(index):
                block.create_var(
                    name=index, shape=origin.shape, dtype=VarType.INT64, stop_gradient=True,
                    lod_level=origin.lod_level,
                )  # fmt: skip
            op.inputs["W"], op.inputs["Ids"] = [rows.name], [index]
            op.attrs["is_sparse"] = op.attrs["is_distributed"] = False
            op.attrs["remote_prefetch"] = True
            if table.padding >= 0:
                op.attrs["padding_idx"] = 0
    for var in block.vars.values():
        if var.name == gradient or var.name.startswith(gradient + "@RENAME@"):
            var.set_inferred((-1, dim), dtype)


def index_name(table: str, ids: str) -> str:
    """Return the variable with the places of ids in the fetched rows of a table."""
    return f"{ids}@{table}{INDEX}"


def _insert_pulls(main: Program, tables: dict[str, RowTable]) -> None:
    """Fetch the rows of all tables in one op where their ids are known, else in one per table."""
    if not tables:
        return
    block = main.global_block()
    first = {name: _first(block.ops, table) for name, table in tables.items()}
    together = min(first.values())
    early = [n for n, table in tables.items() if _known_at(block.ops, together, n, table)]
    groups = [(together, early)] if early else []
    groups += [(first[n], [n]) for n in tables if n not in early]
    for place, names in sorted(groups, reverse=True):
        late = [n for n in names if not _known_at(block.ops, place, n, tables[n])]
        if late:
            raise ValueError(
                f"the program looks up table {late[0]!r} before all ids for it are known: compute "
                "the ids of all look-ups in one table before the first one."
            )
        _insert_pull(main, place, names, tables)


def _ids_of(name: str, table: RowTable) -> list[str]:
    end = f"@{name}{INDEX}"
    return list(dict.fromkeys(op.input("Ids")[0].removesuffix(end) for op in table.lookups))


def _first(ops: list[Operator], table: RowTable) -> int:
    mine = {op.uid for op in table.lookups}
    return next(i for i, op in enumerate(ops) if op.uid in mine)


def _known_at(ops: list[Operator], place: int, name: str, table: RowTable) -> bool:
    ids = set(_ids_of(name, table))
    return not any(ids & set(writes_of(op)) for op in ops[place:])


def _insert_pull(
    main: Program, place: int, names: Sequence[str], tables: dict[str, RowTable]
) -> None:
    ids = [(number, i) for number, n in enumerate(names) for i in _ids_of(n, tables[n])]
    main.global_block().insert_op(
        place,
        type="distributed_lookup_table",
        inputs={"Ids": [i for _, i in ids]},
        outputs={
            "Rows": [n + ROWS for n in names],
            "Index": [index_name(names[number], i) for number, i in ids],
            "Keys": [n + KEYS for n in names],
        },
        attrs={
            "table_names": list(names),
            "table_of_ids": [number for number, _ in ids],
            "padding_ids": [tables[n].padding for n in names],
            "op_role": OpRole.Forward,
        },
    )


# -- sending and receiving ------------------------------------------------------------------------
def _append_sends(
    main: Program,
    tables: ProgramTables,
    mode: ServerMode,
    gradients: dict[str, str],
    endpoints: list[str],
) -> None:
    block = main.global_block()
    common: dict[str, Any] = {"endpoints": endpoints, "op_role": _SENDS}
    rate = {"LearningRate": [tables.rate]} if tables.rate else {}
    dense = tables.trained
    if dense and not mode.updates_on_worker:
        block.append_op(
            type="send",
            inputs={"X": [gradients[n] for n in dense], **rate},
            attrs={**common, "send_varnames": dense},
        )
    for name in tables.sparse:
        block.append_op(
            type="send",
            inputs={"X": [gradients[name]], "Keys": [name + KEYS], **rate},
            attrs={**common, "send_varnames": [name], "is_sparse": 1},
        )
    if mode.kind == "sync":
        block.append_op(type="send_barrier", attrs=common)
    if dense or (tables.sparse and mode.kind != "sync"):
        block.append_op(
            type="recv",
            inputs={"X": dense},
            outputs={"Out": dense},
            attrs={**common, "recv_varnames": dense, "ends_step": mode.kind != "sync"},
        )
        if mode.kind == "sync":
            block.append_op(type="fetch_barrier", attrs=common)


def _write_startup(startup: Program, tables: ProgramTables, worker: int) -> None:
    block = startup.global_block()
    given = [name for name, table in tables.sparse.items() if table.given]
    for name in tables.sparse:
        if worker != 0 or name not in given:
            block.ops = [op for op in block.ops if name not in op.output_arg_names]
    if given and worker == 0:
        block.append_op(
            type="send",
            inputs={"X": given},
            attrs={"send_varnames": given, "is_sparse": 1, "initial": True},
        )
    names = tables.dense_names
    block.append_op(
        type="recv",
        inputs={"X": names},
        outputs={"Out": names},
        attrs={"recv_varnames": names, "initial": True},
    )


def server_programs(endpoint: str, index: int, workers: int) -> tuple[Program, Program]:
    """Return the main and startup program of a server."""
    main = Program()
    main.global_block().append_op(
        type="listen_and_serv",
        attrs={"endpoint": endpoint, "pserver_id": index, "Fanin": workers},
    )
    return main, Program()
