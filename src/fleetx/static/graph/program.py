"""Program: a static graph.

A program is a description; its `binding` holds the run-time state in this process, and
`Executor.run` lowers and runs it. `default_programs` has the two programs that layers write into.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from typing import Any

from fleetx.static.graph.block import Block
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.name_scope import current_path
from fleetx.static.graph.op_names import reads_of
from fleetx.static.graph.operator import Operator, OpRole
from fleetx.static.graph.program_binding import ProgramBinding
from fleetx.static.graph.variable import Parameter, Variable

LR_COUNTER_NAME = "@LR_DECAY_COUNTER@"


class Program:
    """A list of Blocks; block 0 is the main body, the others are bodies of control flow ops."""

    def __init__(self) -> None:
        self.blocks: list[Block] = [Block(self, 0)]
        self.current_block_idx = 0
        self._seed = 0
        self._version = 0
        self._op_role = OpRole.Forward
        self._op_role_var: list[str] = []
        self._device = ""
        self.is_distributed = False
        """Whether it trains with parameter servers."""
        self._endpoints: list[str] = []
        self._is_chief = False
        self._distributed_lookup_table: str | None = None
        self._parameters_on_pservers: Any = None
        self._is_start_up_program_ = False
        self.binding = ProgramBinding()

    # -- blocks ------------------------------------------------------------------------
    def global_block(self) -> Block:
        """Return block 0."""
        return self.blocks[0]

    def block(self, index: int) -> Block:
        """Return the block with this index."""
        return self.blocks[index]

    def current_block(self) -> Block:
        """Return the block that layers append to now."""
        return self.blocks[self.current_block_idx]

    @property
    def num_blocks(self) -> int:
        """The number of blocks."""
        return len(self.blocks)

    def create_block(self, parent_idx: int | None = None) -> Block:
        """Append a child of the current block and make it the current block."""
        parent = self.current_block_idx if parent_idx is None else parent_idx
        block = Block(self, len(self.blocks), parent)
        self.blocks.append(block)
        self.current_block_idx = block.idx
        self.bump_version()
        return block

    def rollback(self) -> None:
        """Make the parent of the current block the current block."""
        self.current_block_idx = self.current_block().parent_idx

    # -- properties --------------------------------------------------------------------
    @property
    def random_seed(self) -> int:
        """The seed of random layers that are added later; 0 draws a new one in every run."""
        return self._seed

    @random_seed.setter
    def random_seed(self, seed: int) -> None:
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise ValueError(f"Program.random_seed must be an int, not {type(seed).__name__}.")
        self._seed = seed

    def global_seed(self, seed: int = 0) -> None:
        """Set the seed of this program and of the two default programs."""
        from fleetx.static.graph.default_programs import (
            default_main_program,
            default_startup_program,
        )

        for program in (self, default_main_program(), default_startup_program()):
            program.random_seed = seed

    def list_vars(self) -> Iterator[Variable]:
        """Iterate over the variables of all blocks."""
        for block in self.blocks:
            yield from list(block.vars.values())

    def all_parameters(self) -> list[Parameter]:
        """Return the Parameters of all blocks."""
        return [v for v in self.list_vars() if isinstance(v, Parameter)]

    @property
    def desc(self) -> Any:
        """A view with the methods of Paddle's ProgramDesc."""
        from fleetx.static.protobuf.desc_view import ProgramDescView

        return ProgramDescView(self)

    @staticmethod
    def parse_from_string(data: bytes) -> Program:
        """Return the program in a serialized ProgramDesc."""
        from fleetx.static.protobuf.serialize import program_from_bytes

        return program_from_bytes(data, source="the given bytes")

    @property
    def _graph(self) -> Any:
        """Paddle's name of `binding.compiled_as`."""
        return self.binding.compiled_as

    @_graph.setter
    def _graph(self, compiled: Any) -> None:
        self.binding.compiled_as = compiled

    def place_on_servers(
        self, endpoints: Sequence[str], *, is_chief: bool, table: str | None, variables: Any
    ) -> None:
        """Record which servers have the parameters, under the private names that scripts read."""
        self.is_distributed = True
        self._endpoints = list(endpoints)
        self._is_chief = is_chief
        self._distributed_lookup_table = table
        self._parameters_on_pservers = variables

    # -- roles of appended ops ---------------------------------------------
    def _stamp(self, op: Operator) -> None:
        """Set the role attributes of a new op, as defined by the active guards."""
        attrs = op.attrs
        attrs.setdefault("op_role", self._op_role)
        if self._op_role_var:
            attrs.setdefault("op_role_var", list(self._op_role_var))
        scope = current_path()
        if scope != "/":
            attrs.setdefault("op_namescope", scope)
        if self._device:
            attrs.setdefault("op_device", self._device)

    @contextlib.contextmanager
    def _role_guard(self, role: int, role_var: Sequence[str] = ()) -> Iterator[None]:
        old = self._op_role, self._op_role_var
        self._op_role, self._op_role_var = role, list(role_var)
        try:
            yield
        finally:
            self._op_role, self._op_role_var = old

    def backward_role_guard(self) -> Any:
        """Mark ops that are appended inside as backward."""
        return self._role_guard(OpRole.Backward)

    def optimized_guard(self, param_and_grads: Sequence[Any]) -> Any:
        """Mark ops that are appended inside as updates of these parameters."""
        names = [v.name if isinstance(v, Variable) else v for v in param_and_grads]
        return self._role_guard(OpRole.Optimize, names)

    def lr_schedule_guard(self, is_with_opt: bool = False) -> Any:
        """Mark ops that are appended inside as part of the learning rate schedule."""
        role = OpRole.LRSched | (OpRole.Optimize if is_with_opt else 0)
        return self._role_guard(role)

    @property
    def version(self) -> int:
        """The number of changes so far."""
        return self._version

    def bump_version(self) -> None:
        """Count a change, so that executors lower the program again."""
        self._version += 1

    def _sync_with_cpp(self) -> None:
        """Do nothing: `desc` is a view of this program."""

    # -- copies ------------------------------------------------------------------------
    def clone(self, for_test: bool = False) -> Program:
        """Return a copy; `for_test` drops backward and update ops and switches to test mode."""
        if not for_test:
            return self._copy()
        other = self.prune_backward()
        other._set_test_mode()
        return other

    def prune_backward(self) -> Program:
        """Return a copy without backward and update ops, and without the variables of these."""
        other = self._copy()
        other._drop_training_ops()
        return other

    def _copy(self) -> Program:
        other = Program()
        other._seed = self._seed
        other.copy_placement_from(self)
        other.binding = self.binding.for_copy()
        other.blocks = []
        for block in self.blocks:
            new = Block(other, block.idx, block.parent_idx)
            new.forward_block_idx = block.forward_block_idx
            other.blocks.append(new)
        for block, new in zip(self.blocks, other.blocks, strict=True):
            for name, var in block.vars.items():
                twin = copy.copy(var)
                twin.block = new
                twin.op = None
                new.vars[name] = twin
            for op in block.ops:
                new.ops.append(_copy_op(op, new))
        for new in other.blocks:
            for op in new.ops:
                for name in op.output_arg_names:
                    target = new.find_var(name)
                    if target is not None:
                        target.op = op
        return other

    def take_over(self, other: Program) -> None:
        """Take the content of `other`, which must not be used afterwards."""
        self.blocks = other.blocks
        for block in self.blocks:
            block.program = self
        self.binding.take_over(other.binding)
        self.bump_version()

    def _copy_param_info_from(self, other: Program) -> None:
        """Turn variables that are Parameters in `other` into Parameters here."""
        _check_program(other, "_copy_param_info_from")
        for param in other.global_block().iter_parameters():
            var = self.global_block().vars.get(param.name)
            if var is not None and not isinstance(var, Parameter):
                twin = copy.copy(param)
                twin.block = self.global_block()
                self.global_block().vars[param.name] = twin

    def copy_placement_from(self, other: Program) -> None:
        """Copy what `place_on_servers` has recorded."""
        _check_program(other, "_copy_dist_param_info_from")
        self.place_on_servers(
            other._endpoints,
            is_chief=other._is_chief,
            table=other._distributed_lookup_table,
            variables=other._parameters_on_pservers,
        )
        self.is_distributed = other.is_distributed

    _copy_dist_param_info_from = copy_placement_from

    def _copy_data_info_from(self, other: Program) -> None:
        _check_program(other, "_copy_data_info_from")
        if len(other.blocks) != len(self.blocks):
            raise ValueError(
                f"the program to copy from has {len(other.blocks)} blocks, this one has "
                f"{len(self.blocks)}: they must be copies of the same program."
            )
        for var in other.list_vars():
            mine = self.global_block().vars.get(var.name)
            if mine is not None:
                mine.is_data, mine.need_check_feed = var.is_data, var.need_check_feed

    def _drop_training_ops(self) -> None:
        drop = OpRole.Backward | OpRole.Optimize | OpRole.LRSched | OpRole.RPC | OpRole.Dist
        for block in self.blocks:
            block.ops = [op for op in block.ops if not op.op_role & drop]
            used = {n for b in self.blocks for op in b.ops for n in _names(op)}
            for name, var in list(block.vars.items()):
                if not (name in used or var.is_data or isinstance(var, Parameter)):
                    del block.vars[name]
        self.bump_version()

    def _set_test_mode(self) -> None:
        for block in self.blocks:
            for op in block.ops:
                if op.has_attr("is_test"):
                    op.attrs["is_test"] = True
        self.bump_version()

    def _inference_optimize(self, prune_read_op: bool = True) -> Program:
        """Return a copy in test mode, without the ops that read data if `prune_read_op`."""
        other = self._copy()
        if prune_read_op:
            root = other.global_block()
            last = max((i for i, op in enumerate(root.ops) if op.type == "read"), default=-1)
            root.ops = root.ops[last + 1 :]
            for name in [n for n, v in root.vars.items() if v.type == VarType.READER]:
                del root.vars[name]
            other._forget_unread()
        other._set_test_mode()
        return other

    def _forget_unread(self) -> None:
        """Drop the readers whose `read` op was removed."""
        read = [op.output("Out") for op in self.global_block().ops if op.type == "read"]
        ports = self.binding.readers
        self.binding.readers = [port for port in ports if port.output_names in read]

    # -- pruning -----------------------------------------------------------------------
    def _prune(self, targets: Any) -> Program:
        """Return a copy with only the ops that the targets depend on."""
        return self.prune_with_input([], targets)

    def prune_with_input(self, feeded_var_names: Sequence[str], targets: Any) -> Program:
        """Return a copy with only the ops between the feeds and the targets."""
        if not isinstance(targets, list | tuple):
            targets = [targets]
        for name in feeded_var_names:
            if not isinstance(name, str):
                raise ValueError(
                    "feeded_var_names of Program.prune_with_input() must hold names (str), not "
                    f"{type(name).__name__}."
                )
        wanted: set[str] = set()
        kept_ops: set[int] = set()
        for target in targets:
            if isinstance(target, Operator):
                kept_ops.add(target.uid)
            elif isinstance(target, Variable):
                wanted.add(target.name)
            elif isinstance(target, str):
                if self.global_block().find_var(target) is None:
                    raise ValueError(f"the program has no variable {target!r} to prune it to.")
                wanted.add(target)
            else:
                raise ValueError(
                    "targets of Program._prune_with_input() must hold Variables or Operators, "
                    f"not {type(target).__name__}."
                )
        other = self._copy()
        root = other.global_block()
        fed = set(feeded_var_names)
        ops: list[Operator] = []
        for op in reversed(root.ops):
            makes = [n for n in op.output_arg_names if n in wanted and n not in fed]
            if makes or op.uid in kept_ops:
                ops.append(op)
                wanted.update(n for n in reads_of(op) if n not in fed)
        root.ops = ops[::-1]
        used = {n for b in other.blocks for op in b.ops for n in _names(op)} | wanted | fed
        for name in [n for n in root.vars if n not in used]:
            del root.vars[name]
        other._forget_unread()
        other.bump_version()
        return other

    # -- text --------------------------------------------------------------------------
    def to_string(self, throw_on_error: bool = False, with_details: bool = False) -> str:
        """Return the program as the text of Paddle's ProgramDesc; `str` is easier to read."""
        if not isinstance(throw_on_error, bool) or not isinstance(with_details, bool):
            raise TypeError("throw_on_error and with_details of to_string() must be bool.")
        from fleetx.static.protobuf.text import program_to_text

        return program_to_text(self, with_details)

    def __str__(self) -> str:
        return "\n".join(str(block) for block in self.blocks)

    __repr__ = __str__

    # Paddle's names, which scripts use.
    _create_block = create_block
    _rollback = rollback
    _backward_role_guard = backward_role_guard
    _optimized_guard = optimized_guard
    _lr_schedule_guard = lr_schedule_guard
    _bump_version = bump_version
    _is_distributed = property(lambda self: self.is_distributed)
    _prune_with_input = prune_with_input


def _check_program(value: Any, method: str) -> None:
    if not isinstance(value, Program):
        raise TypeError(f"{method}() takes a Program, not {type(value).__name__}.")


def _copy_op(op: Operator, block: Block) -> Operator:
    new = copy.copy(op)
    new.block = block
    new.inputs = {k: list(v) for k, v in op.inputs.items()}
    new.outputs = {k: list(v) for k, v in op.outputs.items()}
    new.attrs = {
        k: block.program.blocks[v.idx] if isinstance(v, Block) else v for k, v in op.attrs.items()
    }
    return new


def _names(op: Operator) -> list[str]:
    return op.input_arg_names + op.output_arg_names
