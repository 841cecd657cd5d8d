"""Write the straight-line torch function of a program.

The function's locals are the program's variables; each line is one call; a local is deleted after
its last use, so memory is freed as early as in hand-written code. Line numbers lead from an
exception back to the op that raised it.
"""

from __future__ import annotations

import itertools
import linecache
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from fleetx.static.block import Block
from fleetx.static.dtypes import VarType, to_torch
from fleetx.static.lowering import runtime
from fleetx.static.lowering.analysis import is_persistable
from fleetx.static.lowering.backward_call import BackwardCall
from fleetx.static.lowering.blocks import OpContext, bind_op, call_with_lod
from fleetx.static.lowering.fusion import FusedOp
from fleetx.static.lowering.gradient_reducer import GradientReducer
from fleetx.static.lowering.plan import make_plan
from fleetx.static.lowering.segment_code import LOCAL, SegmentCode, free_early
from fleetx.static.lowering.segments import SegmentCall, choose_runner
from fleetx.static.lowering.skipped_updates import guarded_ops, read_from_outside, skip_name
from fleetx.static.op_registry import EMPTY_NAME, get_op
from fleetx.static.operator import Operator
from fleetx.static.program import Program, reads_of, sub_blocks
from fleetx.static.scope import Scope, ScopeVariable


@dataclass
class LoweredStep:
    """A program lowered for fixed feeds, fetches and scope: call it with the feed tensors."""

    run: Callable[..., list[Any]]
    source: str
    feed_names: list[str]
    required: list[str]  # data variables that must be fed
    context: OpContext
    ops_of_line: dict[int, tuple[Operator, ...]]  # the first stands for all
    local_names: dict[str, str]  # variable -> its name in the function
    holders: dict[str, ScopeVariable]
    filename: str
    lines: list[str]  # the body, one call a line
    boundary: int  # the first line after forward and backward: what follows only updates
    namespace: dict[str, Any]
    holder_names: dict[str, str]  # variable -> its name in the namespace
    # Per fetch, whether its memory belongs to somebody else (None: only if it is a view).
    copy_fetches: tuple[bool | None, ...] = ()


@dataclass
class _Writer:
    """The function being written."""

    lines: list[str] = field(default_factory=list)
    ops_of_line: dict[int, tuple[Operator, ...]] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=dict)  # globals of the function
    locals: dict[str, str] = field(default_factory=dict)  # variable name -> Python name
    indent: str = "    "

    def emit(self, text: str, *ops: Operator) -> None:
        self.lines.append(self.indent + text)
        if ops:
            self.ops_of_line[len(self.lines) + 1] = ops  # line 1 is the def

    def constant(self, value: Any, hint: str) -> str:
        name = f"{hint}{len(self.names)}"
        self.names[name] = value
        return name

    def local(self, name: str) -> str:
        if name not in self.locals:
            self.locals[name] = f"v{len(self.locals)}"
        return self.locals[name]


class _Lowering:
    """Everything known while one program is lowered."""

    def __init__(
        self,
        program: Program,
        feeds: list[str],
        fetches: list[str],
        scope: Scope,
        ctx: OpContext,
        with_lod: bool,
    ) -> None:
        self.block: Block = program.global_block()
        self.feeds = feeds
        self.fetches = fetches
        self.scope = scope
        self.ctx = ctx
        self.with_lod = with_lod
        self.writer = _Writer()
        self.holders: dict[str, ScopeVariable] = {}
        self.holder_names: dict[str, str] = {}
        self.tracked: set[str] = set()  # variables that autograd follows now
        self.plan = make_plan(self.block, feeds, fetches, with_lod=with_lod)
        self.flows, self.leaves = self.plan.flows, self.plan.leaves
        # A loss that autograd starts from as a 0-d tensor -> the local that holds it.
        self.scalars: dict[str, str] = {}
        self.segments: list[SegmentCode] = []
        self.required: list[str] = []
        self.boundary = 0

    # -- values ---------------------------------------------------------------------
    def holder(self, name: str) -> str:
        """Return the Python name of a scope variable."""
        if name not in self.holder_names:
            self.holders[name] = self.scope.var(name)
            self.holder_names[name] = self.writer.constant(self.holders[name], "H")
        return self.holder_names[name]

    def in_scope(self, name: str) -> bool:
        return is_persistable(self.block, name) or self.scope.find_var(name) is not None

    def read(self, name: str, *, flows: bool, base: bool, optional: bool = False) -> str:
        """Return the expression for a variable's value, loading it from the scope at first use.

        An `optional` value that nothing has made yet is None: the old value of an output.
        """
        if name == EMPTY_NAME:
            return "None"
        writer = self.writer
        if base and is_persistable(self.block, name):
            return f"{self.holder(name)}.value"
        if name not in writer.locals:
            if not self.in_scope(name):
                var = self.block._find_var_recursive(name)
                if var is not None and (var.is_data or var.need_check_feed):
                    self.required.append(name)
                    writer.emit(f"{writer.local(name)} = None")
                    return writer.local(name)
                if optional or (var is not None and var.dtype is None):
                    return "None"  # an array that its first write makes
                self.required.append(name)
                return "None"
            if name in self.leaves:
                writer.emit(f"{writer.local(name)} = {self.holder(name)}.leaf()")
                self.tracked.add(name)
            else:
                writer.emit(f"{writer.local(name)} = {self.holder(name)}.value")
        if name in self.tracked and not flows:
            if is_persistable(self.block, name):
                return f"{self.holder(name)}.value"
            cut = "cut({})" if self.may_be_no_tensor(name) else "{}.detach()"
            return cut.format(writer.local(name))
        return writer.local(name)

    def may_be_no_tensor(self, name: str) -> bool:
        """Whether a value can be an array, or missing because no branch has written it."""
        var = self.block._find_var_recursive(name)
        return var is None or var.type != VarType.LOD_TENSOR or bool(var.op and sub_blocks(var.op))

    def arguments(self, op: Operator) -> str:
        """Return the argument list of an op's call."""
        op_def = get_op(op.type)
        flow = self.flows.get(op.uid)
        changed = {source: op.output(out) for out, source in op_def.inplace.items()}
        parts = []
        for slot in op_def.inputs:
            row = [
                self.read(
                    name,
                    flows=flow is not None and (slot.name, i) in flow,
                    base=slot.name in changed,
                    optional=slot.name in op._outputs,
                )
                for i, name in enumerate(op.input(slot.name))
            ]
            if changed.get(slot.name) and changed[slot.name] != op.input(slot.name):
                # The function writes into its input, but the result belongs to another variable.
                row = [value if value == "None" else f"{value}.clone()" for value in row]
            if slot.many:
                parts.append("[" + ", ".join(row) + "]")
            else:
                parts.append(row[0] if row else "None")
        return ", ".join(parts)

    def bind_outputs(self, op: Operator) -> tuple[str, list[str]]:
        """Return the assignment target of a call and the names it binds."""
        op_def = get_op(op.type)
        targets, bound = [], []
        for slot in op_def.outputs:
            names = op.output(slot.name)
            source = op_def.inplace.get(slot.name)
            if source is not None and names == op.input(source):
                targets.append("_")  # changed in place: the scope's tensor is already new
                continue
            row = []
            for name in names:
                if name == EMPTY_NAME:
                    row.append("_")
                else:
                    row.append(self.writer.local(name))
                    bound.append(name)
            if slot.many:
                targets.append(
                    "(" + ", ".join(row) + ("," if len(row) == 1 else "") + ")" if row else "_"
                )
            else:
                targets.append(row[0] if row else "_")
        if all(t == "_" for t in targets):
            return "", bound
        return ", ".join(targets), bound

    def after_write(self, op: Operator, bound: list[str]) -> None:
        """Keep the books after an op wrote variables: autograd's and the scope's."""
        follows = op.uid in self.flows
        for name in bound:
            if follows:
                self.tracked.add(name)
            else:
                self.tracked.discard(name)
            if name in self.leaves and not follows:
                local = self.writer.local(name)
                self.writer.emit(f"{local} = {local}.detach().requires_grad_()")
                self.tracked.add(name)
            if is_persistable(self.block, name):
                self.writer.emit(f"{self.holder(name)}.value = keep({self.writer.local(name)})", op)

    # -- instructions ---------------------------------------------------------------
    def write_op(self, op: Operator) -> None:
        writer = self.writer
        op_def = get_op(op.type)
        if op.uid in self.plan.used_rows:
            call = writer.constant(bind_op(op, self.ctx), "f")
            ids = [self.read(n, flows=False, base=False) for n in self.plan.used_rows[op.uid]]
            text = f"{call}({self.arguments(op)}, rows=({', '.join(ids)},))"
        elif op_def.needs_lod or self.with_lod:
            call = writer.constant(bind_op(op, self.ctx), "f")
            op_name, def_name = writer.constant(op, "op"), writer.constant(op_def, "d")
            text = f"lod_call({op_name}, {def_name}, {call}, [{self.arguments(op)}], ctx)"
        else:
            call = writer.constant(bind_op(op, self.ctx), "f")
            text = f"{call}({self.arguments(op)})"
        if sub_blocks(op):
            for name in reads_of(op):
                if name not in op.input_arg_names and name in self.leaves:
                    self.read(name, flows=True, base=False)
        targets, bound = self.bind_outputs(op)
        writer.emit(f"{targets} = {text}" if targets else text, op)
        self.after_write(op, bound)

    def write_fused(self, item: FusedOp) -> None:
        flow = item.flows(self.flows)
        args = ", ".join(
            self.read(name, flows=(i in flow), base=False) for i, name in enumerate(item.inputs)
        )
        call = self.writer.constant(item.fn, "f")
        target = self.writer.local(item.output)
        if item.is_loss:
            # Kept as a 0-d root for autograd; everybody else sees a plain value of shape [1].
            root = self.scalars[item.output] = self.writer.local(item.output + "@ROOT")
            self.writer.emit(f"{root} = {call}({args})", *reversed(item.ops))
            self.writer.emit(f"{target} = {root}.detach().reshape(1)")
            return
        self.writer.emit(f"{target} = {call}({args})", *reversed(item.ops))
        self.after_write(item.ops[-1], [item.output])

    def write_group(self, group: list[Operator]) -> None:
        op_def = get_op(group[0].type)
        assert op_def.fused is not None
        attrs = {k: v for k, v in group[0]._attrs.items() if k in op_def.names}
        if op_def.needs_ctx:
            attrs["ctx"] = self.ctx
        call = self.writer.constant(
            (lambda rows, fused=op_def.fused, attrs=attrs: fused(rows, **attrs)), "f"
        )
        rows = ", ".join(f"({self.arguments(op)},)" for op in group)
        all_bound: list[tuple[Operator, list[str]]] = []
        targets = []
        for op in group:
            target, bound = self.bind_outputs(op)
            if target and len(get_op(op.type).outputs) > 1:
                target = f"({target})"
            targets.append(target or "_")
            all_bound.append((op, bound))
        left = ", ".join(targets) + ("," if len(targets) == 1 else "")
        if all(t == "_" for t in targets):
            self.writer.emit(f"{call}(({rows},))", *group)
        else:
            self.writer.emit(f"{left} = {call}(({rows},))", *group)
        for op, bound in all_bound:
            self.after_write(op, bound)

    def seed(self, name: str, grad: str) -> str:
        """Return the expression for a root's gradient; ones are made once, not in every step."""
        op = self.plan.ones.get(grad)
        if op is None:
            return self.read(grad, flows=True, base=False)
        shape = [] if name in self.scalars else list(op.attr("shape"))
        var = self.block._var_recursive(grad)
        value = torch.ones(shape, dtype=to_torch(var.dtype), device=self.ctx.device)
        return self.writer.constant(value, "ones")

    def write_backward(self, call: BackwardCall, is_last: bool) -> None:
        roots = ", ".join(
            self.scalars.get(n) or self.read(n, flows=True, base=False) for n, _ in call.roots
        )
        seeds = ", ".join(self.seed(n, g) for n, g in call.roots)
        inputs = ", ".join(self.read(n, flows=True, base=False) for n, _ in call.results)
        outputs = ", ".join(self.writer.local(g) for _, g in call.results)
        retain = "" if is_last else ", retain_graph=True"
        run = (
            self.writer.constant(self.reducer(call).run, "reduce")
            if call.reduced
            else "autograd_grad"
        )
        self.writer.emit(f"{outputs}, = {run}(({roots},), ({inputs},), ({seeds},){retain})")
        if is_last:
            self.writer.emit("set_grad(False)")

    def write_segment(self, call: SegmentCall) -> None:
        """Write a function of its own for a segment, and call it."""
        writer = self.writer
        for name in call.inputs:
            if name not in call.changed:
                self.read(name, flows=True, base=False)  # loaded here, not in the function
        lines, ops_of_line = writer.lines, writer.ops_of_line
        writer.lines, writer.ops_of_line = [], {}
        for item in call.items:
            if isinstance(item, FusedOp):
                self.write_fused(item)
            else:
                self.write_op(item)
        code = SegmentCode(
            name=f"S{len(self.segments)}",
            lines=writer.lines,
            ops_of_line=writer.ops_of_line,
            fixed={
                writer.locals[n]
                for n in call.inputs
                if n in writer.locals and is_persistable(self.block, n)
            },
            changed={self.holder(n) for n in call.changed if n in self.holder_names},
        )
        writer.lines, writer.ops_of_line = lines, ops_of_line
        code.take_out_scope()
        code.position = len(lines)
        writer.emit("", call.ops[-1])  # the call: written when it is known which results are used
        for line in code.stores:
            writer.emit(line)
        self.segments.append(code)

    def finish_segments(self) -> None:
        """Write the calls of segments."""
        lines = self.writer.lines
        for code in reversed(self.segments):
            used = {n for line in lines[code.position + 1 :] for n in LOCAL.findall(line)}
            lines[code.position] = "    " + code.finish(used)

    def reducer(self, call: BackwardCall) -> GradientReducer:
        """Return what sums the results over workers: last parameters first, as they become
        ready."""
        exchange = self.block.program._gradient_exchange
        position = {name: i for i, name in enumerate(self.block.vars)}
        names = [name for name, _ in call.results]
        order = sorted(range(len(names)), key=lambda i: -position.get(names[i], 0))
        return GradientReducer(exchange, order)

    def begin_guard(self, name: str | None, ops: list[Operator]) -> None:
        """Write the condition of updates that are left out where variable `name` is true."""
        if name is None:
            return
        for source, in_place in read_from_outside(ops):
            self.read(source, flows=False, base=in_place)  # loaded here, not under the condition
        for result in self.fetches:
            if any(result in op.output_arg_names for op in ops):
                self.writer.emit(f"{self.writer.local(result)} = None")
        self.writer.emit(f"if not {self.read(name, flows=False, base=False)}:")
        self.writer.indent += "    "

    def end_guard(self, ops: list[Operator]) -> None:
        """End the condition; what follows takes values that may have been left as they were from
        the scope."""
        self.writer.indent = "    "
        for name in {n: None for op in ops for n in self.bind_outputs(op)[1]}:
            if is_persistable(self.block, name):
                self.writer.emit(f"{self.writer.local(name)} = {self.holder(name)}.value")

    def write(self) -> None:
        """Write the whole function."""
        sequence = self.plan.sequence
        writer = self.writer
        for name in self.feeds:
            writer.local(name)
        backward = [i for i, x in enumerate(sequence) if isinstance(x, BackwardCall)]
        writer.emit(f"set_grad({bool(backward)})")
        for name in self.feeds:
            if name in self.leaves:
                local = writer.local(name)
                writer.emit(f"{local} = {local}.detach().requires_grad_()")
                self.tracked.add(name)
            if is_persistable(self.block, name):
                writer.emit(f"{self.holder(name)}.value = {writer.local(name)}.clone()")
        guard: str | None = None
        guarded: list[Operator] = []
        for i, item in enumerate(sequence):
            if skip_name(item) != guard:
                self.end_guard(guarded)
                guard, guarded = skip_name(item), guarded_ops(sequence, i)
                self.begin_guard(guard, guarded)
            if isinstance(item, BackwardCall):
                self.write_backward(item, is_last=i == backward[-1])
            elif isinstance(item, list):
                self.write_group(item)
            elif isinstance(item, FusedOp):
                self.write_fused(item)
            elif isinstance(item, SegmentCall):
                self.write_segment(item)
            else:
                self.write_op(item)
            if backward and i == backward[-1]:
                self.boundary = len(writer.lines)
        self.end_guard(guarded)
        if not backward:
            self.boundary = len(writer.lines)
        fetched = ", ".join(self.read(n, flows=False, base=True) for n in self.fetches)
        writer.emit(f"return [{fetched}]")
        self.finish_segments()

    def source(self) -> str:
        """Return the function and, behind it, those of its segments."""
        writer = self.writer
        arguments = ", ".join(writer.local(n) for n in self.feeds)
        lines = [f"def step({arguments}):", *free_early(writer.lines), ""]
        for code in self.segments:
            for number, ops in code.ops_of_line.items():
                writer.ops_of_line[len(lines) + number] = ops
            lines += code.source()
        return "\n".join([*lines, ""])


_numbers = itertools.count(1)


def lower(
    program: Program,
    feeds: list[str],
    fetches: list[str],
    scope: Scope,
    device: torch.device,
    *,
    with_lod: bool = False,
) -> LoweredStep:
    """Lower a program for these feeds and fetches to a function over torch tensors."""
    ctx = OpContext(device, scope, program._gradient_exchange, program._servers)
    work = _Lowering(program, feeds, fetches, scope, ctx, with_lod)
    work.write()
    writer = work.writer
    source = work.source()
    filename = f"<fleetx step {next(_numbers)}>"
    namespace: dict[str, Any] = {
        **writer.names,
        "ctx": ctx,
        "lod_call": call_with_lod,
        "keep": runtime.keep_value,
        "cut": runtime.cut_value,
        "autograd_grad": runtime.differentiate,
        "run_segment": choose_runner(
            offloads=program._offloads_checkpoints and bool(work.segments), device=device.type
        ),
        "set_grad": torch._C._set_grad_enabled,
    }
    exec(compile(source, filename, "exec"), namespace)  # written above, from op definitions
    # So that tracebacks and profilers can show the lines of the generated function.
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    step = LoweredStep(
        lines=writer.lines,
        boundary=work.boundary,
        namespace=namespace,
        holder_names=work.holder_names,
        run=namespace["step"],
        source=source,
        feed_names=feeds,
        required=work.required,
        context=ctx,
        ops_of_line=writer.ops_of_line,
        local_names=writer.locals,
        holders=work.holders,
        filename=filename,
        copy_fetches=tuple(
            True
            if is_persistable(work.block, n) or n in feeds
            else (False if n in work.scalars else None)
            for n in fetches
        ),
    )
    weakref.finalize(step, linecache.cache.pop, filename, None)
    return step
