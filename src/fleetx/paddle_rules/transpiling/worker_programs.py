"""A worker's programs as Paddle 1.8 writes them: `split_byref`, `send`, `recv`, `concat`, …

They are written in two parts, as scripts see them: `transpile` inserts the ops that exchange,
`get_trainer_program` removes the updates. What an executor runs is made from them (`running.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from fleetx.paddle_rules.transpiling.server_slices import LOOKUPS, Layout, Piece
from fleetx.static.graph.block import Block
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.operator import Operator, OpRole
from fleetx.static.graph.program import Program
from fleetx.static.initializer import ConstantInitializer
from fleetx.static.inspection.searching import find_op_by_output_arg

_controls = itertools.count()


class WorkerText:
    """Writes the programs of one worker, and records the changes."""

    def __init__(self, layout: Layout, main: Program, startup: Program) -> None:
        self._layout = layout
        self._main, self._startup = main, startup
        self.added: set[int] = set()
        """Ops that were inserted, by `uid`."""
        self.removed: set[int] = set()
        """Ops of the completed program that were removed, by `uid`."""
        self.renamed: dict[str, str] = {}
        """Gradients with this worker's suffix: their old names."""
        self._updates_are_there = True

    # -- transpile --------------------------------------------------------------------
    def write(self) -> None:
        """Insert the ops that exchange gradients and parameters."""
        layout, block = self._layout, self._main.global_block()
        if layout.geo:
            self._write_geo(block)
            return
        for op in layout.clips:
            op.set_attr("op_role", OpRole.Backward)
        self._make_variables(block)
        controls = {name: self._write_send(block, name) for name in layout.sent}
        others = [] if layout.sync else self._write_counter(block)
        barrier = self._write_send_barrier(block, [*controls.values(), *others])
        received = [name for name in layout.pieces if name not in layout.lookups]
        for name in received:
            self._write_recv(block, name, barrier if layout.sync else controls[name])
        for name, lookups in layout.lookups.items():
            self._fetch_rows(block, name, lookups)
        if layout.sync:
            outputs = [n for name in received for n in self._received(name)]
            self._add(
                block, "fetch_barrier", {"X": [barrier]}, {"Out": outputs},
                endpoints=layout.endpoints, trainer_id=layout.trainer_id,
            )  # fmt: skip
        if not layout.config.runtime_split_send_recv:
            self._write_concats(block, received)
        self._write_startup(received)
        self._main.is_distributed = True

    def _write_geo(self, block: Block) -> None:
        """Exchange changes: one op that sends after the updates, which stay."""
        self._updates_are_there = False
        received = [name for name in self._layout.pieces if name not in self._layout.lookups]
        self._write_startup(received)
        startup = self._startup.global_block()
        first = startup.create_var(name="param_init", persistable=True)
        everywhere = self._layout.endpoints
        for owner, names in ((block, []), (startup, [first.name])):
            self._add(
                owner, "send", {"X": names}, {"Out": [_control(owner)]}, op_role=OpRole.Forward,
                send_varnames=names, epmap=everywhere, trainer_id=self._layout.trainer_id,
            )  # fmt: skip
        self._main.is_distributed = True

    def _add(
        self,
        block: Block,
        kind: str,
        inputs: dict[str, Any],
        outputs: dict[str, Any],
        *,
        place: int | None = None,
        op_role: int = OpRole.RPC,
        **attrs: Any,
    ) -> Operator:
        index = len(block.ops) if place is None else place
        op = block.insert_op(
            index, type=kind, inputs=inputs, outputs=outputs, attrs={"op_role": op_role, **attrs}
        )
        self.added.add(op.uid)
        return op

    def _make_variables(self, block: Block) -> None:
        """Create the slices of parameters and gradients; rename gradients that are not sliced."""
        layout = self._layout
        for name, pieces in layout.pieces.items():
            grad = layout.grad_of[name]
            origin = block.var(grad)
            if name in layout.lookups:
                origin.type = VarType.SELECTED_ROWS
            if len(pieces) == 1:
                if layout.suffix:
                    rename(block, grad, grad + layout.suffix)
                    self.renamed[grad + layout.suffix] = grad
                continue
            param = block.var(name)
            for piece in pieces:
                _variable_of(block, piece.param.name, piece.param.shape, param)
                _variable_of(block, piece.grad.name + layout.suffix, piece.grad.shape, origin)

    def _write_send(self, block: Block, name: str) -> str:
        """Send a gradient after its last write; return the variable that orders later ops."""
        layout = self._layout
        pieces, grad = layout.pieces[name], layout.grad_of[name]
        parts = [piece.grad.name + layout.suffix for piece in pieces]
        source = parts[0] if len(parts) == 1 else grad
        place = find_op_by_output_arg(block, source, reverse=True) + 1
        splits_late = layout.config.runtime_split_send_recv
        heights = [piece.grad.shape[0] for piece in pieces]
        if len(parts) > 1 and not splits_late:
            rows = name in layout.lookups
            self._add(
                block, "split_selected_rows" if rows else "split_byref",
                {"X": [grad]}, {"Out": parts}, place=place, op_role=OpRole.Dist,
                **{"height_sections" if rows else "sections": heights},
            )  # fmt: skip
            place += 1
        sent = [piece.grad.name for piece in pieces]
        if layout.config.completely_not_async and layout.trainers > 1:
            sent = [n + layout.suffix_of(layout.trainer_id) for n in sent]
        control = _control(block)
        self._add(
            block, "send", {"X": [source] if splits_late else parts}, {"Out": [control]},
            place=place, epmap=[piece.endpoint for piece in pieces],
            sections=heights if splits_late else [], send_varnames=sent if splits_late else [],
            op_role_var=[name, source],
        )  # fmt: skip
        return control

    def _write_counter(self, block: Block) -> list[str]:
        """Make servers sum the steps of all workers; return the variable that orders later ops."""
        layout = self._layout
        steps = [op for op in layout.schedule if op.type == "increment"]
        if not steps:
            return []
        counter = block.var(steps[0].output("Out")[0])
        startup = self._startup.global_block()
        own = [counter.name + layout.suffix_of(i) for i in range(layout.trainers)]
        for name in own:
            for owner, first in ((block, None), (startup, ConstantInitializer(1.0))):
                before = {op.uid for op in startup.ops}
                owner.create_var(
                    name=name, type=counter.type, shape=counter.shape, dtype=counter.dtype,
                    persistable=True, initializer=first,
                )  # fmt: skip
                self.added |= {op.uid for op in startup.ops} - before
        mine = own[layout.trainer_id]
        control = _control(block)
        late = layout.config.runtime_split_send_recv
        self._add(
            block, "send", {"X": [mine]}, {"Out": [control]}, epmap=layout.endpoints, sections=[],
            send_varnames=[counter.name] if late else [], merge_add=True, use_send_handler=False,
            op_role_var=[mine, mine],
        )  # fmt: skip
        return [control]

    def _write_send_barrier(self, block: Block, controls: Sequence[str]) -> str:
        layout, barrier = self._layout, _control(block)
        half = layout.config.runtime_split_send_recv and layout.config.half_async
        if layout.sync or half:
            self._add(
                block, "send_barrier", {"X": list(controls)}, {"Out": [barrier]},
                endpoints=layout.endpoints, trainer_id=layout.trainer_id,
                half_async=not layout.sync,
            )  # fmt: skip
        return barrier

    def _received(self, name: str) -> list[str]:
        if self._layout.config.runtime_split_send_recv:
            return [name]
        return [piece.param.name for piece in self._layout.pieces[name]]

    def _write_recv(self, block: Block, name: str, control: str) -> None:
        layout = self._layout
        pieces, grad = layout.pieces[name], layout.grad_of[name]
        late = layout.config.runtime_split_send_recv
        self._add(
            block, "recv", {"X": [control]}, {"Out": self._received(name)},
            epmap=[piece.endpoint for piece in pieces],
            recv_varnames=[piece.param.name for piece in pieces] if late else [],
            trainer_id=layout.trainer_id,
            op_role_var=[name, grad + layout.suffix if len(pieces) == 1 else grad],
        )  # fmt: skip

    def _fetch_rows(self, block: Block, name: str, lookups: Sequence[Operator]) -> None:
        """Replace the look-ups in a table by one op, after all ids are known."""
        layout = self._layout
        pieces = layout.pieces[name]
        self._remove(block, lookups)
        ids = [op.input("Ids")[0] for op in lookups]
        known = [i for i, op in enumerate(block.ops) if set(ids) & set(op.output_arg_names)]
        self._add(
            block, "distributed_lookup_table", {"Ids": ids, "W": [name]},
            {"Outputs": [op.output("Out")[0] for op in lookups]},
            place=max(known, default=-1) + 1, op_role=OpRole.Forward,
            table_names=[piece.param.name for piece in pieces],
            height_sections=[piece.param.shape[0] for piece in pieces],
            endpoints=[piece.endpoint for piece in pieces],
            padding_idx=lookups[0].attr("padding_idx"), trainer_id=layout.trainer_id,
            lookup_table_version=lookups[0].type,
        )  # fmt: skip

    def _write_concats(self, block: Block, names: Iterable[str]) -> None:
        for name in names:
            pieces: list[Piece] = self._layout.pieces[name]
            if len(pieces) > 1:
                parts = [piece.param.name for piece in pieces]
                self._add(
                    block, "concat", {"X": parts}, {"Out": [name]}, op_role=OpRole.Dist, axis=0
                )

    def _write_startup(self, names: Sequence[str]) -> None:
        layout, startup = self._layout, self._startup.global_block()
        main = self._main.global_block()
        for name in names:
            pieces = layout.pieces[name]
            if name not in startup.vars:
                startup.clone_variable(main.var(name))
            for piece in pieces:
                _variable_of(startup, piece.param.name, piece.param.shape, main.var(name))
            self._add(
                startup, "recv", {"X": []}, {"Out": [piece.param.name for piece in pieces]},
                epmap=[piece.endpoint for piece in pieces], trainer_id=layout.trainer_id,
            )  # fmt: skip
        self._add(
            startup, "fetch_barrier", {}, {"Out": [_control(startup)]},
            endpoints=layout.endpoints, trainer_id=layout.trainer_id,
        )  # fmt: skip
        self._write_concats(startup, names)

    # -- get_trainer_program ----------------------------------------------------------
    def drop_updates(self) -> None:
        """Remove updates, the learning rate schedule, and the initial values of both."""
        if not self._updates_are_there:
            return
        self._updates_are_there = False
        layout = self._layout
        main, startup = self._main.global_block(), self._startup.global_block()
        kept = {n for op in layout.updates for n in op.attr("op_role_var")}
        gone = {n for op in layout.updates for n in op.input_arg_names} - kept
        gone -= set(self.renamed)
        self._remove(startup, [op for op in startup.ops if gone & set(op.output_arg_names)])
        for name in self._tables():
            first = [op for op in startup.ops if name in op.output_arg_names]
            shape = list(startup.var(name).shape)
            self._add(startup, "fake_init", {}, {"Out": [name]}, op_role=0, shape=shape)
            self._remove(startup, first)
        self._remove(main, [*layout.schedule, *layout.updates])
        for block in (main, startup):
            for name in gone & set(block.vars):
                del block.vars[name]
        for program in (self._main, self._startup):
            program.bump_version()

    def _tables(self) -> list[str]:
        """Return the parameters that are only on servers."""
        found = []
        for op in self._main.global_block().ops:
            fetched = op.type == "distributed_lookup_table" and op.uid in self.added
            sparse = op.type in ("nce", LOOKUPS[0]) and op.attr("is_sparse")
            if fetched or (sparse and op.backward_id is None):
                found += op.input("W") or op.input("Weight")
        return list(dict.fromkeys(found))

    def _remove(self, block: Block, ops: Sequence[Operator]) -> None:
        gone = {op.uid for op in ops}
        self.removed |= gone
        block.ops = [op for op in block.ops if op.uid not in gone]


def rename(block: Block, old: str, new: str) -> None:
    """Rename a variable of a block, and in its ops."""
    var = block.vars.pop(old)
    var.name = new
    block.vars[new] = var
    for op in block.ops:
        op.rename_input(old, new)
        op.rename_output(old, new)


def _control(block: Block) -> str:
    """Create a variable that orders ops."""
    return block.create_var(name=f"__control_var@{next(_controls)}").name


def _variable_of(block: Block, name: str, shape: Sequence[int], like: Any) -> None:
    if name not in block.vars:
        block.create_var(
            name=name, persistable=False, dtype=like.dtype, type=like.type, shape=list(shape)
        )
