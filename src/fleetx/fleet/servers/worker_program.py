"""Programs of a job with parameter servers: the result of `minimize`, rewritten for workers.

A worker's program has no updates. Its look-ups in sparse tables work on fetched rows, and it ends
with `send` (gradients, of all dense parameters in one op), `send_barrier` in synchronous training,
and `recv` (parameters). In geo training the updates of dense parameters stay. The startup program
sends the initial values to the servers and pulls the common ones. The backward pass is unchanged,
so that it is still one call of autograd.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fleetx.fleet.servers.early_ids import move_to_front
from fleetx.fleet.servers.program_tables import ProgramTables, RowTable
from fleetx.ps.modes.server_mode import ServerMode
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_names import reads_of, writes_of
from fleetx.static.graph.op_registry import SKIP_UPDATE
from fleetx.static.graph.operator import Operator, OpRole
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Parameter
from fleetx.static.optimizer.gradient_merge_optimizer import SUFFIX
from fleetx.step.program_step import WrittenUpdate

ROWS, KEYS, INDEX = "@ROWS", "@IDS", "@INDEX"
_SENDS = OpRole.Optimize  # so that clone(for_test=True) leaves them out


def write_worker(
    written: WrittenUpdate,
    tables: ProgramTables,
    mode: ServerMode,
    endpoints: Sequence[str],
    *,
    worker: int,
) -> None:
    """Turn a completed training program and its startup program into a worker's."""
    main, startup = written.main, written.startup
    gradients = {param.name: grad.name for param, grad in written.pairs if grad is not None}
    skip = next((op.inputs[SKIP_UPDATE] for op in written.updates if SKIP_UPDATE in op.inputs), [])
    before = _used(main)
    if mode.updates_on_worker:
        _drop_updates(written, set(tables.sparse))
    else:
        _drop_updates(written, None, keep=tables.rate)
    is_merged = written.block is not main.global_block()
    for name in tables.sparse:
        if is_merged:
            gradients[name] = name + "@GRAD"
        _use_rows(main, name, tables.sparse[name], gradients[name])
    after = len(written.block.ops) - written.end
    _insert_pulls(main, tables.sparse)
    if is_merged:
        for name in tables.sparse:
            after -= _send_rows_of_each_run(written, name, endpoints, tables.rate)
    written.end = len(written.block.ops) - after
    _insert_sends(written, tables, mode, gradients, list(endpoints), skip)
    if is_merged:
        _list_variables(written)
    _drop_variables(written, before - _used(main) - {tables.rate})
    _write_startup(startup, tables, worker)
    for program in (main, startup):
        program.is_distributed = True
        program.bump_version()


def written_by_minimize(main: Program, startup: Program) -> WrittenUpdate:
    """Return the updates of a program that an optimizer has completed on its own: all that follows
    the backward pass."""
    block = main.global_block()
    last = (i for i, op in enumerate(block.ops) if op.backward_id is not None)
    start = 1 + max(last, default=len(block.ops))
    written = WrittenUpdate(main, startup, None, (), block, start, len(block.ops))
    made = {name for op in block.ops[:start] for name in op.output_arg_names}
    pairs = []
    for op in written.updates:
        param = op.input("Param")[0]
        wanted = param + "@GRAD"
        grad = wanted if wanted in made else op.input("Grad")[0]
        pairs.append((block.var(param), block.var(grad)))
    return replace(written, pairs=pairs)


def _drop_updates(written: WrittenUpdate, of: set[str] | None, keep: str | None = None) -> None:
    """Remove updates (of some parameters), with their state; the learning rate stays."""
    after = written.block.ops[written.start : written.end]
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
    _remove(written, [op for op in after if id(op) not in left])
    written.end = written.start + len(kept)


def _remove(written: WrittenUpdate, gone: Sequence[Operator]) -> None:
    ids = {id(op) for op in gone}
    for block in (written.main.global_block(), written.block):
        block.ops = [op for op in block.ops if id(op) not in ids]


def _used(main: Program) -> set[str]:
    """Return the variables that ops read and write."""
    return {n for b in main.blocks for op in b.ops for n in (*reads_of(op), *writes_of(op))}


def _drop_variables(written: WrittenUpdate, names: set[str]) -> None:
    """Remove variables that are no parameters, with their first values."""
    startup = written.startup.global_block()
    for block in (written.main.global_block(), written.block):
        for name in names & set(block.vars):
            if not isinstance(block.vars[name], Parameter):
                del block.vars[name]
                startup.ops = [op for op in startup.ops if name not in op.output_arg_names]
                startup.vars.pop(name, None)


def _list_variables(written: WrittenUpdate) -> None:
    """Restrict the op that runs the block of the updates to the variables used in it."""
    used = {n for op in written.block.ops for n in (*reads_of(op), *writes_of(op))}
    for op in written.main.global_block().ops:
        if op.attrs.get("sub_block") is written.block:
            op.inputs["Input"] = [n for n in op.input("Input") if n in used]
            op.outputs["Out"] = [n for n in op.output("Out") if n in used]


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
    """Fetch the rows of all tables in one op if their ids are known, otherwise in one per table."""
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
def _insert_sends(
    written: WrittenUpdate,
    tables: ProgramTables,
    mode: ServerMode,
    gradients: dict[str, str],
    endpoints: list[str],
    skip: list[str],
) -> None:
    """Send gradients and fetch parameters in place of updates; `skip` names the overflow flag."""
    block, place = written.block, written.end
    is_merged = block is not written.main.global_block()
    rate = {"LearningRate": [tables.rate]} if tables.rate else {}
    dense = tables.trained

    def insert(kind: str, inputs: dict[str, Any], attrs: dict[str, Any], **outputs: Any) -> None:
        nonlocal place
        if skip:
            inputs = {**inputs, SKIP_UPDATE: skip}
        attrs = {"endpoints": endpoints, "op_role": _SENDS, **attrs}
        block.insert_op(place, type=kind, inputs=inputs, outputs=outputs, attrs=attrs)
        place += 1

    if dense and not mode.updates_on_worker:
        insert("send", {"X": [gradients[n] for n in dense], **rate}, {"send_varnames": dense})
    for name in () if is_merged else tables.sparse:
        rows = {"X": [gradients[name]], "Keys": [name + KEYS], **rate}
        insert("send", rows, {"send_varnames": [name], "is_sparse": 1})
    if mode.kind == "sync":
        insert("send_barrier", {}, {})
    if dense or (tables.sparse and mode.kind != "sync"):
        settings = {"recv_varnames": dense, "ends_step": mode.kind != "sync"}
        insert("recv", {"X": dense}, settings, Out=dense)
        if mode.kind == "sync":
            insert("fetch_barrier", {}, {})


def _send_rows_of_each_run(
    written: WrittenUpdate, name: str, endpoints: Sequence[str], rate: str | None
) -> int:
    """Store the gradients of rows until the run that updates, when others are accumulated; return
    how many ops after the updates were removed.
    """
    total, main = name + SUFFIX, written.main
    mine = [
        op
        for block in (main.global_block(), written.block)
        for op in block.ops
        if op.output("Out") == [total]
    ]
    share = next((float(op.attr("scale")) for op in mine if op.type == "scale"), 1.0)
    block = main.global_block()
    place = block.ops.index(mine[0])
    behind = sum(op in mine for op in written.block.ops[written.end :])
    _remove(written, mine)
    scale: list[str] = []
    for op in written.block.ops:  # the check of amp, and what follows it
        if total in op.input("X"):
            scale = op.input("Scale") or scale
            op.inputs["X"] = [n for n in op.input("X") if n != total]
            op.outputs["Out"] = [n for n in op.output("Out") if n != total]
    block.insert_op(
        place,
        type="send",
        inputs={
            "X": [name + "@GRAD"],
            "Keys": [name + KEYS],
            "LearningRate": [rate] if rate else [],
            "Scale": scale,
        },
        attrs={
            "endpoints": list(endpoints),
            "send_varnames": [name],
            "is_sparse": 1,
            "share": share,
            "op_role": _SENDS,
        },
    )
    return behind


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
