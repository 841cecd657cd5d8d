"""The programs that an executor runs instead of a worker's.

The ops that Paddle writes are for its servers. Ours use fewer, larger messages, so an executor runs
another program: that of `minimize`, with later changes of the script, written for our servers
(`fleet/servers/worker_program.py`).
"""

from __future__ import annotations

import weakref
from dataclasses import replace

from fleetx.fleet.servers.job import ServerJob
from fleetx.fleet.servers.worker_program import use_served_rows, written_by_minimize
from fleetx.paddle_rules.transpiling.worker_programs import WorkerText, rename
from fleetx.ps.modes.server_mode import ServerMode
from fleetx.static.graph.block import Block
from fleetx.static.graph.operator import Operator
from fleetx.static.graph.program import Program

_Made = tuple[int, int, Program]


class RunningPrograms:
    """Creates the programs that run from those that are shown."""

    def __init__(
        self, job: ServerJob, mode: ServerMode, text: WorkerText, main: Program, startup: Program
    ) -> None:
        """`main` and `startup` are shown; their completed state is copied now."""
        self._job, self._mode, self._text = job, mode, text
        self._shown, self._shown_startup = main, startup
        self.main, self.startup = copy_of(main), copy_of(startup)
        self._updated_by = main.binding.updated_by
        self._updated_by.use_learning_rate_of(main, self.main)
        first, first_startup = self._copies(self.main, self.startup)
        self.tables = job.write_programs(written_by_minimize(first, first_startup), mode)
        self._link = first.binding.servers
        self._made: weakref.WeakKeyDictionary[Program, _Made] = weakref.WeakKeyDictionary()

    def attach(self) -> None:
        """Make executors run the created programs for the shown ones and copies of them."""
        self._shown.binding.servers = self._shown_startup.binding.servers = self._link
        self._shown.binding.runs_as = self._main_of
        self._shown_startup.binding.runs_as = self._startup_of

    def _copies(self, main: Program, startup: Program) -> tuple[Program, Program]:
        twin = copy_of(main)
        twin.binding.updated_by = self._updated_by
        self._updated_by.use_learning_rate_of(self.main, twin)
        return twin, copy_of(startup)

    def _main_of(self, shown: Program) -> Program:
        return self._running(shown, shown, self._shown_startup)

    def _startup_of(self, shown: Program) -> Program:
        return self._running(shown, self._shown, shown)

    def _running(self, wanted: Program, main: Program, startup: Program) -> Program:
        versions = main.version, startup.version
        found = self._made.get(wanted)
        if found is None or found[:2] != versions:
            made = self._write(main, startup)[0 if wanted is main else 1]
            found = self._made[wanted] = (*versions, made)
        found[2].binding.measured = wanted.binding.measured
        return found[2]

    def _write(self, main: Program, startup: Program) -> tuple[Program, Program]:
        trains = any(op.backward_id is not None for op in main.global_block().ops)
        first, first_startup = self._copies(main, startup)
        self._restore(first, self.main, everything=trains)
        self._restore(first_startup, self.startup, everything=True)
        if trains:
            written = written_by_minimize(first, first_startup)
            known = {op.uid for op in self.main.global_block().ops}
            ops = first.global_block().ops
            written.end = 1 + max(i for i, op in enumerate(ops) if op.uid in known)
            self._job.write_again(written, self._mode)
        else:
            ops = first.global_block().ops
            tables = {}
            for name, table in self.tables.sparse.items():
                mine = {op.uid for op in table.lookups}
                lookups = [op for op in ops if op.uid in mine]
                if lookups:
                    tables[name] = replace(table, lookups=lookups)
            use_served_rows(first, tables)
            first.binding.servers = self._link
        return first, first_startup

    def _is_added(self, op: Operator) -> bool:
        return op.uid in self._text.added

    def _restore(self, program: Program, completed: Program, *, everything: bool) -> None:
        """Undo the shown changes: remove added ops, and restore removed ones."""
        block, origin = program.global_block(), copy_of(completed).global_block()
        for new, old in self._text.renamed.items():
            if new in block.vars:
                rename(block, new, old)
        back = {op.uid for op in origin.ops if op.uid in self._text.removed}
        if not everything:  # a copy for testing fetches rows, and has no updates
            back &= {op.uid for table in self.tables.sparse.values() for op in table.lookups}
        here = {op.uid: op for op in block.ops if not self._is_added(op)}
        known = {op.uid for op in origin.ops}
        own: list[Operator] = []  # ops that the script has added since the last original one
        before: dict[int, list[Operator]] = {}
        for op in here.values():
            if op.uid in known:
                before[op.uid], own = own, []
            else:
                own.append(op)
        ops: list[Operator] = []
        for op in origin.ops:
            ops += before.get(op.uid, [])
            if op.uid in here:
                ops.append(here[op.uid])
            elif op.uid in back:
                ops.append(_moved(op, block))
        ops += own
        block.ops = ops
        for name in {n for op in ops for n in (*op.input_arg_names, *op.output_arg_names)}:
            if name not in block.vars and name in origin.vars:
                block.vars[name] = origin.vars[name]
                block.vars[name].block = block
        program.bump_version()


def copy_of(program: Program) -> Program:
    """Return a copy that runs unchanged."""
    twin = program.clone()
    twin.binding.runs_as = None
    return twin


def _moved(op: Operator, block: Block) -> Operator:
    """Move an op of a copied program to another copy."""
    op.block = block
    for name, value in op.attrs.items():
        if isinstance(value, Block):
            op.attrs[name] = block.program.blocks[value.idx]
    return op
