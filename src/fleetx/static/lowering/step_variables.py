"""The lines of a step that is being written, and the values of variables in them.

A variable is a local of the step's function or lives in a scope variable. Reading it loads it at
first use; writing it stores persistable values and marks those that autograd tracks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fleetx.static.graph.block import Block
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_names import sub_blocks
from fleetx.static.graph.op_registry import EMPTY_NAME, get_op
from fleetx.static.graph.operator import Operator
from fleetx.static.lowering.generated_code import (
    NONE,
    Code,
    Line,
    code,
    held,
    listed,
    local,
    statement,
)
from fleetx.static.lowering.needed_ops import is_persistable
from fleetx.static.lowering.plan import Plan
from fleetx.static.lowering.segment_code import SegmentCode
from fleetx.static.run.scope import Scope, ScopeVariable

UNUSED = Code("_")  # the target of a result that nothing reads


@dataclass
class StepWriter:
    """The function being written."""

    lines: list[Line] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)  # globals of the function
    locals: dict[str, str] = field(default_factory=dict)  # variable name -> Python name
    depth: int = 1
    segment: SegmentCode | None = None  # whose body is being written, if any
    checks_numbers: bool = False  # results of ops must be finite

    def emit(self, value: Code, *ops: Operator, to: Code | None = None) -> None:
        """Write a line of the function, or of the segment whose body is being written."""
        lines = self.lines if self.segment is None else self.segment.lines
        if ops and to is not None:
            value = self.checked(value)
        lines.append(statement(value, ops, to=to, depth=self.depth))

    def checked(self, value: Code) -> Code:
        """Return the expression for results of ops, with the check of its numbers if it is on."""
        return code("finite({})", value) if self.checks_numbers else value

    def open_block(self, condition: Code) -> None:
        """Write an `if`; the following lines are inside it until `depth` is reset."""
        self.lines.append(statement(condition, depth=self.depth, opens_block=True))
        self.depth += 1

    def store(self, holder: str, value: Code, *ops: Operator) -> None:
        """Write an assignment to a scope variable; those of a segment follow its call."""
        lines = self.lines if self.segment is None else self.segment.stores
        lines.append(statement(value, ops, to=held(holder), depth=self.depth))

    def held(self, holder: str) -> Code:
        """Return the value of a scope variable, which is an argument in a segment's function."""
        return held(holder) if self.segment is None else self.segment.argument(holder)

    def constant(self, value: Any, hint: str) -> str:
        """Make a value a global of the function; return its name."""
        name = f"{hint}{len(self.names)}"
        self.names[name] = value
        return name

    def local(self, name: str) -> Code:
        """Return the local that holds a variable."""
        if name not in self.locals:
            self.locals[name] = f"v{len(self.locals)}"
        return local(self.locals[name])


class StepVariables:
    """The variables of a program while its step is written: locals, scope variables, leaves."""

    def __init__(self, block: Block, scope: Scope, plan: Plan) -> None:
        self.block = block
        self.scope = scope
        self.plan = plan
        self.flows, self.leaves = plan.flows, plan.leaves
        self.writer = StepWriter()
        self.holders: dict[str, ScopeVariable] = {}
        self.holder_names: dict[str, str] = {}
        self.tracked: set[str] = set()  # variables that autograd tracks now
        self.made_whole: set[str] = set()  # sparse gradients that an op has changed in place
        self.required: list[str] = []

    def holder(self, name: str) -> str:
        """Return the Python name of a scope variable."""
        if name not in self.holder_names:
            self.holders[name] = self.scope.var(name)
            self.holder_names[name] = self.writer.constant(self.holders[name], "H")
        return self.holder_names[name]

    def in_scope(self, name: str) -> bool:
        """Return whether a variable lives in the scope, or will after this step."""
        return is_persistable(self.block, name) or self.scope.find_var(name) is not None

    def read(self, name: str, *, flows: bool, base: bool, optional: bool = False) -> Code:
        """Return the expression for a variable's value, loading it from the scope at first use.

        An `optional` value that does not exist yet is None: the old value of an output.
        """
        if name == EMPTY_NAME:
            return NONE
        writer = self.writer
        if base and is_persistable(self.block, name):
            return writer.held(self.holder(name))
        if name not in writer.locals:
            if not self.in_scope(name):
                var = self.block.find_var(name)
                if var is not None and (var.is_data or var.need_check_feed):
                    self.required.append(name)
                    writer.emit(NONE, to=writer.local(name))
                    return writer.local(name)
                if optional or (var is not None and var.dtype is None):
                    return NONE  # an array that its first write creates
                self.required.append(name)
                return NONE
            target, holder = writer.local(name), self.holder(name)
            if name in self.leaves:
                writer.emit(Code(f"{holder}.leaf()", held=(holder,)), to=target)
                self.tracked.add(name)
            else:
                writer.emit(writer.held(holder), to=target)
        if name in self.tracked and not flows:
            if is_persistable(self.block, name):
                return writer.held(self.holder(name))
            cut = "cut({})" if self.may_be_no_tensor(name) else "{}.detach()"
            return code(cut, writer.local(name))
        return writer.local(name)

    def may_be_no_tensor(self, name: str) -> bool:
        """Return whether a value can be an array, or missing because no branch has written it."""
        var = self.block.find_var(name)
        return var is None or var.type != VarType.LOD_TENSOR or bool(var.op and sub_blocks(var.op))

    def arguments(self, op: Operator) -> Code:
        """Return the argument list of an op's call."""
        op_def = get_op(op.type)
        flow = self.flows.get(op.uid)
        changed = {source: op.output(out) for out, source in op_def.inplace.items()}
        self.make_whole(op, {n for source in changed for n in op.input(source)})
        parts = []
        for slot in op_def.inputs:
            row = [
                self.whole(
                    [op],
                    name,
                    self.read(
                        name,
                        flows=flow is not None and (slot.name, i) in flow,
                        base=slot.name in changed,
                        optional=slot.name in op.outputs,
                    ),
                )
                for i, name in enumerate(op.input(slot.name))
            ]
            if changed.get(slot.name) and changed[slot.name] != op.input(slot.name):
                # The function writes into its input, but the result belongs to another variable.
                row = [value if value is NONE else code("{}.clone()", value) for value in row]
            if slot.many:
                parts.append(code("[{}]", listed(row)))
            else:
                parts.append(row[0] if row else NONE)
        return listed(parts)

    def whole(self, ops: list[Operator], name: str, value: Code) -> Code:
        """Return an input of ops; rows are made dense if the ops do not compute on rows."""
        rows = self.plan.rows
        if name in self.made_whole or not any(
            name in rows.inputs.get(op.uid, ()) and op.uid not in rows.ops for op in ops
        ):
            return value
        return code("{}.to_dense()", value)

    def make_whole(self, op: Operator, changed: set[str]) -> None:
        """Make sparse gradients dense that an op is about to change in place."""
        rows = self.plan.rows
        if op.uid in rows.ops:
            return
        for name in sorted(changed & rows.inputs.get(op.uid, set()) - self.made_whole):
            target = self.writer.local(name)
            self.writer.emit(code("{}.to_dense()", target), to=target)
            self.made_whole.add(name)

    def bind_outputs(self, op: Operator) -> tuple[Code | None, list[str]]:
        """Return the assignment target of a call, None if nothing is kept, and what it binds."""
        op_def = get_op(op.type)
        targets, bound = [], []
        for slot in op_def.outputs:
            names = op.output(slot.name)
            source = op_def.inplace.get(slot.name)
            if source is not None and names == op.input(source):
                targets.append(UNUSED)  # changed in place: the scope's tensor is already new
                continue
            row = []
            for name in names:
                if name == EMPTY_NAME:
                    row.append(UNUSED)
                else:
                    row.append(self.writer.local(name))
                    bound.append(name)
            if slot.many:
                targets.append(code("({})", tuple_target(row)) if row else UNUSED)
            else:
                targets.append(row[0] if row else UNUSED)
        if all(target is UNUSED for target in targets):
            return None, bound
        return listed(targets), bound

    def after_write(self, op: Operator, bound: list[str]) -> None:
        """Track variables that an op has written, for autograd and the scope."""
        follows = op.uid in self.flows
        for name in bound:
            if follows:
                self.tracked.add(name)
            else:
                self.tracked.discard(name)
            if name in self.leaves and not follows:
                self.make_leaf(name)
            if is_persistable(self.block, name):
                value = code("keep({})", self.writer.local(name))
                self.writer.store(self.holder(name), value, op)

    def make_leaf(self, name: str) -> None:
        """Make a variable a leaf of autograd at this point."""
        target = self.writer.local(name)
        self.writer.emit(code("{}.detach().requires_grad_()", target), to=target)
        self.tracked.add(name)


def tuple_target(parts: list[Code]) -> Code:
    """Return joined assignment targets, with the comma that a single one needs."""
    return code("{}," if len(parts) == 1 else "{}", listed(parts))
