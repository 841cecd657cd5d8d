"""A server's programs as Paddle 1.8 writes them: `listen_and_serv` and a block per update.

Block 0 has the op that serves; its attribute `optimize_blocks` lists the schedule of the learning
rate and one block per piece of a parameter: gradients added up, penalties, the update.
"""

from __future__ import annotations

import copy
from typing import Any

from fleetx.paddle_rules.server_config import DistributedMode
from fleetx.paddle_rules.transpiling.server_slices import SHARED, Layout, Piece
from fleetx.static.graph.block import Block
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.operator import Operator
from fleetx.static.graph.program import Program


class ServerText:
    """Writes the programs of the server at one address."""

    def __init__(self, layout: Layout, main: Program, startup: Program, endpoint: str) -> None:
        """`main` and `startup` are the programs after `minimize`, before they were divided."""
        self._layout, self._endpoint = layout, endpoint
        self._origin, self._origin_startup = main, startup
        self._pieces = layout.on(endpoint)
        self._program = Program()
        self._program.random_seed = main.random_seed
        self._root = self._program.global_block()
        self._cut: dict[tuple[int, ...], tuple[int, ...]] = {}
        """The shape of the parameter whose update is written: that of its piece."""

    def main(self) -> Program:
        """Return the main program."""
        if self._layout.geo:
            return self._geo_main()
        layout, root, program = self._layout, self._root, self._program
        inputs = self._make_variables()
        blocks: list[Block] = []
        schedule = self._write_schedule()
        if schedule is not None:
            blocks.append(schedule)
        parent = program.num_blocks - 1
        places, rows = [], []
        for op in self._my_updates():
            block = program.create_block(parent)
            blocks.append(block)
            piece = layout.piece_of(op.input("Param")[0], self._endpoint)
            assert piece is not None
            self._write_update(block, piece)
            places.append(f"{piece.grad.name}:{block.idx}")
            if root.var(piece.grad.name).type == VarType.SELECTED_ROWS:
                rows.append(f"{piece.grad.name}:{piece.param.name}")
        if not blocks:
            blocks.append(program.create_block(parent))
        self._serve(
            inputs, blocks, places, sparse_grad_to_param=rows,
            distributed_mode=layout.config.distributed_mode,
            lr_decay_block_id=-1 if schedule is None else schedule.idx,
        )  # fmt: skip
        return program

    def _serve(
        self,
        inputs: list[str],
        blocks: list[Block],
        places: list[str],
        *,
        distributed_mode: int,
        **attrs: Any,
    ) -> None:
        self._root.append_op(
            type="listen_and_serv",
            inputs={"X": inputs},
            outputs={},
            attrs={
                "optimize_blocks": blocks,
                "endpoint": self._endpoint,
                "pserver_id": self._layout.endpoints.index(self._endpoint),
                "Fanin": self._layout.trainers,
                "distributed_mode": distributed_mode,
                "grad_to_block_id": places,
                **attrs,
            },
        )
        self._program.current_block_idx = 0

    def _geo_main(self) -> Program:
        """Return a program that sums the workers' changes."""
        program, blocks, places = self._program, [], []
        for piece in self._pieces:
            param = self._origin.global_block().var(piece.param.parameter)
            delta = piece.param.name + ".delta"
            for name in (piece.param.name, delta):
                self._root.create_var(
                    name=name, shape=list(piece.param.shape), dtype=param.dtype, type=param.type,
                    persistable=name != delta,
                )  # fmt: skip
            block = program.create_block(0)
            block.append_op(
                type="sum", inputs={"X": [piece.param.name, delta]},
                outputs={"Out": [piece.param.name]},
            )  # fmt: skip
            blocks.append(block)
            places.append(f"{delta}:{block.idx}")
        if not blocks:
            blocks.append(program.create_block(0))
        self._serve([], blocks, places, distributed_mode=DistributedMode.GEO)
        return program

    def _make_variables(self) -> list[str]:
        """Create parameters and gradients; return the variables that workers send."""
        layout, root, sent = self._layout, self._root, []
        for piece in self._pieces:
            param = self._origin.global_block().var(piece.param.parameter)
            root.create_var(
                name=piece.param.name, shape=list(piece.param.shape), dtype=param.dtype,
                type=param.type, persistable=True,
            )  # fmt: skip
        for piece in self._pieces:
            grad = self._origin.global_block().var(layout.grad_of[piece.param.parameter])
            served = piece.param.parameter in layout.lookups
            like: dict[str, Any] = {
                "shape": list(piece.grad.shape),
                "dtype": grad.dtype,
                "type": VarType.SELECTED_ROWS if served else grad.type,
            }
            root.create_var(name=piece.grad.name, persistable=True, **like)
            if not layout.adds_up:
                sent.append(piece.grad.name)
                continue
            for worker in range(layout.trainers):
                name = piece.grad.name + layout.suffix_of(worker)
                root.create_var(name=name, persistable=False, **like)
                sent.append(name)
        return sent

    def _my_updates(self) -> list[Operator]:
        mine = {piece.param.parameter for piece in self._pieces}
        return [
            op for op in self._layout.updates if _is_update(op) and op.input("Param")[0] in mine
        ]

    # -- the learning rate --------------------------------------------------------------
    def _write_schedule(self) -> Block | None:
        layout = self._layout
        if not layout.schedule:
            return None
        block = self._program.create_block(self._program.num_blocks - 1)
        for op in layout.schedule:
            if not layout.sync and op.type == "increment":
                counter = op.output("Out")[0]
                names = self._counters()[0]
                like = self._origin.global_block().var(counter)
                for name in names:
                    self._root.create_var(
                        name=name, shape=list(like.shape), dtype=like.dtype, persistable=True
                    )
                self._variable(counter)
                block.append_op(
                    type="sum", inputs={"X": names}, outputs={"Out": [counter]},
                    attrs={"op_role": op.op_role},
                )  # fmt: skip
                continue
            self._copy_op(block, op)
        return block

    def _copy_op(self, block: Block, op: Operator) -> None:
        """Append an op with this server's slices in place of whole variables; copy the block of a
        branch."""
        attrs = dict(op.attrs)
        for name, value in attrs.items():
            if isinstance(value, Block):
                attrs[name] = self._copy_block(value, block)
        inputs = {slot: [self._variable(n) for n in names] for slot, names in op.inputs.items()}
        outputs = {slot: [self._variable(n) for n in names] for slot, names in op.outputs.items()}
        block.append_op(type=op.type, inputs=inputs, outputs=outputs, attrs=attrs)

    def _copy_block(self, origin: Block, parent: Block) -> Block:
        block = self._program.create_block(parent.idx)
        for var in origin.vars.values():
            block.clone_variable(var, force_persistable=False)
        for op in origin.ops:
            self._copy_op(block, op)
        return block

    def _variable(self, name: str) -> str:
        """Return the name of a variable of the original program; create it if needed."""
        for piece in self._pieces:
            if name == piece.param.parameter:
                return piece.param.name
            if name == self._layout.grad_of[piece.param.parameter]:
                return piece.grad.name
        found = self._origin.global_block().vars.get(name)
        if found is not None and name not in self._root.vars:
            shape = tuple(found.shape)
            self._root.clone_variable(found).set_inferred(self._cut.get(shape, shape), found.dtype)
        return name

    # -- updates ----------------------------------------------------------------------
    def _write_update(self, block: Block, piece: Piece) -> None:
        layout, grad = self._layout, piece.grad.name
        whole = self._origin.global_block().var(piece.param.parameter).shape
        self._cut = {tuple(whole): piece.param.shape}
        if layout.adds_up:
            sent = [grad + layout.suffix_of(worker) for worker in range(layout.trainers)]
            block.append_op(type="sum", inputs={"X": sent}, outputs={"Out": [grad]})
            block.append_op(
                type="scale", inputs={"X": [grad]}, outputs={"Out": [grad]},
                attrs={"scale": 1.0 / layout.trainers},
            )  # fmt: skip
        for op in layout.updates:
            if list(op.attr("op_role_var"))[:1] != [piece.param.parameter]:
                continue
            if _is_update(op):
                self._copy_update(block, op, piece)
            elif op not in layout.schedule:
                self._copy_op(block, op)

    def _copy_update(self, block: Block, op: Operator, piece: Piece) -> None:
        inputs = {slot: list(names) for slot, names in op.inputs.items()}
        for slot, names in op.inputs.items():
            if slot not in SHARED:
                for name in names:
                    self._make_state(self._origin.global_block().var(name))
        inputs["Param"] = [piece.param.name]
        given = op.input("Grad")[0]
        penalised = (
            given != self._layout.grad_of[piece.param.parameter] and given in self._root.vars
        )
        inputs["Grad"] = [given if penalised else piece.grad.name]
        inputs["LearningRate"] = [self._variable(n) for n in op.input("LearningRate")]
        outputs = {slot: list(names) for slot, names in op.outputs.items()}
        outputs["ParamOut"] = [piece.param.name]
        block.append_op(type=op.type, inputs=inputs, outputs=outputs, attrs=dict(op.attrs))

    def _make_state(self, var: Any) -> None:
        """Create a variable of an update: state of the parameter's shape is sliced like it."""
        shape = tuple(var.shape)
        self._root.create_var(
            name=var.name, shape=list(self._cut.get(shape, shape)), dtype=var.dtype,
            persistable=var.persistable,
        )  # fmt: skip

    # -- first values -----------------------------------------------------------------
    def startup(self, main: Program) -> Program:
        """Return the startup program that belongs to a main program."""
        found = Program()
        found.random_seed = self._origin_startup.random_seed
        block, known = found.global_block(), main.global_block().vars
        for var in known.values():
            block.clone_variable(var)
        counters = [] if self._layout.sync else self._counters()
        for name in reversed([n for names in counters for n in names]):
            block.append_op(
                type="fill_constant", inputs={}, outputs={"Out": [name]},
                attrs={"shape": [1], "dtype": known[name].dtype, "value": 1.0},
            )  # fmt: skip
        for op in self._first_values(known):
            outputs = {slot: [self._here(n) for n in names] for slot, names in op.outputs.items()}
            attrs = copy.copy(op.attrs)
            if "shape" in attrs:
                attrs["shape"] = list(known[next(iter(outputs.values()))[0]].shape)
            block.append_op(
                type=op.type, inputs={s: list(n) for s, n in op.inputs.items()}, outputs=outputs,
                attrs=attrs,
            )  # fmt: skip
        return found

    def _counters(self) -> list[list[str]]:
        """Return, per counter of steps, its parts that workers send."""
        layout = self._layout
        names = [op.output("Out")[0] for op in layout.schedule if op.type == "increment"]
        return [[n + layout.suffix_of(i) for i in range(layout.trainers)] for n in names]

    def _first_values(self, known: Any) -> list[Operator]:
        ops = self._origin_startup.global_block().ops
        return [op for op in ops if any(self._here(n) in known for n in op.output_arg_names)]

    def _here(self, name: str) -> str:
        for piece in self._pieces:
            if name == piece.param.parameter:
                return piece.param.name
        return name


def _is_update(op: Operator) -> bool:
    return bool(op.input("Param")) and bool(op.input("LearningRate"))
