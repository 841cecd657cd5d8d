"""Write the straight-line torch function of a program.

The function's locals are the program's variables; each line is one call; a local is deleted after
its last use, so memory is freed as early as in hand-written code. Line numbers map an exception to
the op that raised it.
"""

from __future__ import annotations

import itertools
import linecache
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from fleetx import torch_private
from fleetx.static.graph.dtypes import to_torch
from fleetx.static.graph.op_names import reads_of, sub_blocks
from fleetx.static.graph.op_registry import get_op
from fleetx.static.graph.operator import Operator, OpRole
from fleetx.static.graph.program import Program
from fleetx.static.lowering import step_functions
from fleetx.static.lowering.backward_call import BackwardCall
from fleetx.static.lowering.blocks import OpContext, bind_group, bind_op, call_with_lod
from fleetx.static.lowering.fusion import FusedOp, ops_of
from fleetx.static.lowering.generated_code import (
    NONE,
    Code,
    Function,
    Line,
    code,
    held,
    listed,
    render,
)
from fleetx.static.lowering.gradient_reducer import GradientReducer
from fleetx.static.lowering.needed_ops import changed_in_place, is_persistable
from fleetx.static.lowering.plan import Instruction, make_plan
from fleetx.static.lowering.row_ops import as_rows
from fleetx.static.lowering.segment_code import SegmentCode
from fleetx.static.lowering.segments import SegmentCall, choose_runner
from fleetx.static.lowering.skipped_updates import guarded_ops, read_from_outside, skip_name
from fleetx.static.lowering.step_variables import UNUSED, StepVariables, tuple_target
from fleetx.static.run.scope import Scope, ScopeVariable


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
    function: Function
    boundary: int  # the first line after forward and backward: what follows only updates
    namespace: dict[str, Any]
    # Per fetch, whether its memory is shared and must be copied (None: only if it is a view).
    copy_fetches: tuple[bool | None, ...] = ()


class _Lowering(StepVariables):
    """The state of lowering one program, and how each kind of instruction is written."""

    def __init__(
        self,
        program: Program,
        feeds: list[str],
        fetches: list[str],
        scope: Scope,
        ctx: OpContext,
        with_lod: bool,
    ) -> None:
        block = program.global_block()
        super().__init__(block, scope, make_plan(block, feeds, fetches, with_lod=with_lod))
        self.feeds = feeds
        self.fetches = fetches
        self.ctx = ctx
        self.with_lod = with_lod
        # A loss that autograd starts from as a 0-d tensor -> the local that holds it.
        self.scalars: dict[str, Code] = {}
        self.segments: list[SegmentCode] = []
        self.boundary = 0
        self.pauses = False  # between forward and backward

    # -- instructions ---------------------------------------------------------------
    def write_op(self, op: Operator) -> None:
        writer = self.writer
        op_def = get_op(op.type)
        on_rows = op.uid in self.plan.rows.ops
        call = writer.constant(bind_op(op, self.ctx, on_rows=on_rows), "f")
        if (op_def.needs_lod or self.with_lod) and not on_rows:
            names = writer.constant(op, "op"), writer.constant(op_def, "d"), call
            value = code("lod_call({}, {}, {}, [{}], ctx)", *names, self.arguments(op))
        else:
            value = code("{}({})", call, self.arguments(op))
        if sub_blocks(op):
            for name in reads_of(op):
                if name not in op.input_arg_names and name in self.leaves:
                    self.read(name, flows=True, base=False)
            for name in sorted(self.plan.saved.get(op.uid, ())):
                saved = self.read(name, flows=True, base=False)
                writer.emit(saved, to=self.before(op, name))
        target, bound = self.bind_outputs(op)
        writer.emit(value, op, to=target)
        self.after_write(op, bound)

    def before(self, op: Operator, name: str) -> Code:
        """Return the local for the value of a variable before an op that overwrites it."""
        return self.writer.local(f"{name}@BEFORE@{op.uid}")

    def write_fused(self, item: FusedOp) -> None:
        writer = self.writer
        flow = item.flows(self.flows)
        args = listed(
            self.whole(item.ops, name, self.read(name, flows=(i in flow), base=False))
            for i, name in enumerate(item.inputs)
        )
        value = code("{}({})", writer.constant(item.fn, "f"), args)
        target = writer.local(item.output)
        if item.is_loss:
            # A 0-d root for autograd; all other readers get a detached value of shape [1].
            root = self.scalars[item.output] = writer.local(item.output + "@ROOT")
            writer.emit(value, *reversed(item.ops), to=root)
            writer.emit(code("{}.detach().reshape(1)", root), to=target)
            return
        writer.emit(value, *reversed(item.ops), to=target)
        self.after_write(item.ops[-1], [item.output])

    def write_group(self, group: list[Operator]) -> None:
        op_def = get_op(group[0].type)
        call = self.writer.constant(bind_group(group, self.ctx), "f")
        rows = listed(code("({},)", self.arguments(op)) for op in group)
        value = code("{}(({},))", call, rows)
        all_bound: list[tuple[Operator, list[str]]] = []
        targets = []
        for op in group:
            target, bound = self.bind_outputs(op)
            if target is not None and len(op_def.outputs) > 1:
                target = code("({})", target)
            targets.append(target or UNUSED)
            all_bound.append((op, bound))
        unused = all(target is UNUSED for target in targets)
        self.writer.emit(value, *group, to=None if unused else tuple_target(targets))
        for op, bound in all_bound:
            self.after_write(op, bound)

    def seed(self, name: str, grad: str) -> Code:
        """Return the expression for a root's gradient; constant ones are created only once."""
        op = self.plan.ones.get(grad)
        if op is None:
            return self.read(grad, flows=True, base=False)
        shape = [] if name in self.scalars else list(op.attr("shape"))
        var = self.block.var_recursive(grad)
        value = torch.ones(shape, dtype=to_torch(var.dtype), device=self.ctx.device)
        return Code(self.writer.constant(value, "ones"))

    def write_backward(self, call: BackwardCall, is_last: bool) -> None:
        writer = self.writer
        roots = listed(
            self.scalars.get(n) or self.read(n, flows=True, base=False) for n, _ in call.roots
        )
        seeds = listed(self.seed(n, g) for n, g in call.roots)
        inputs = listed(
            self.before(call.before[g], n)
            if g in call.before
            else self.read(n, flows=True, base=False)
            for n, g in call.results
        )
        outputs = listed(writer.local(g) for _, g in call.results)
        more = "" if is_last else ", retain_graph=True"
        rows = {i: g for i, (_, g) in enumerate(call.results) if g in self.plan.rows.results}
        if rows and not call.reduced:
            more += f", rows={tuple(rows)}"
        run = writer.constant(self.reducer(call).run, "reduce") if call.reduced else "autograd_grad"
        value = code("{}(({},), ({},), ({},){})", run, roots, inputs, seeds, more)
        writer.emit(writer.checked(value), to=code("{},", outputs))
        if is_last:
            writer.emit(Code("set_grad(False)"))
        self.boundary = len(writer.lines)
        for _, grad in call.results:
            if is_persistable(self.block, grad):
                writer.store(self.holder(grad), code("keep({})", writer.local(grad)))
        for grad in rows.values():
            ids = [self.read(n, flows=False, base=False) for n in self.plan.rows.results[grad]]
            target = writer.local(grad)
            writer.emit(code("as_rows({})", listed([target, *ids])), to=target)

    def write_segment(self, call: SegmentCall) -> None:
        """Write the function of a segment; `finish_segments` adds the call."""
        writer = self.writer
        for name in call.inputs:
            if name not in call.changed:
                self.read(name, flows=True, base=False)  # loaded outside of the function
        segment = writer.segment = SegmentCode(f"S{len(self.segments)}", last_op=call.ops[-1])
        for item in call.items:
            if isinstance(item, FusedOp):
                self.write_fused(item)
            else:
                self.write_op(item)
        writer.segment = None
        segment.fixed = {
            writer.locals[n]
            for n in call.inputs
            if n in writer.locals and is_persistable(self.block, n)
        }
        segment.changed = {self.holder(n) for n in call.changed if n in self.holder_names}
        segment.position = len(writer.lines)
        writer.lines += [Line(""), *segment.stores]  # the first becomes the call
        self.segments.append(segment)

    def finish_segments(self) -> list[Function]:
        """Write the calls of segments, now that their used results are known; return them."""
        lines = self.writer.lines
        functions = []
        for segment in reversed(self.segments):
            used = {name for line in lines[segment.position + 1 :] for name in line.reads}
            function, lines[segment.position] = segment.finish(used)
            functions.append(function)
        return functions[::-1]

    def reducer(self, call: BackwardCall) -> GradientReducer:
        """Return the reducer of the results; the last parameters are ready first."""
        exchange = self.block.program.binding.gradient_exchange
        position = {name: i for i, name in enumerate(self.block.vars)}
        names = [name for name, _ in call.results]
        order = sorted(range(len(names)), key=lambda i: -position.get(names[i], 0))
        rows = {i for i, (_, g) in enumerate(call.results) if g in self.plan.rows.results}
        return GradientReducer(exchange, [i for i in order if i not in rows], sorted(rows))

    def begin_guard(self, name: str | None, ops: list[Operator]) -> None:
        """Write the condition of updates that are skipped if variable `name` is true."""
        if name is None:
            return
        for source, in_place in read_from_outside(ops):
            self.read(source, flows=False, base=in_place)  # loaded before the condition
        for result in self.fetches:
            if any(result in op.output_arg_names for op in ops):
                self.writer.emit(NONE, to=self.writer.local(result))
        self.writer.open_block(code("if not {}:", self.read(name, flows=False, base=False)))

    def end_guard(self, ops: list[Operator]) -> None:
        """End the condition; reload values that may not have been updated from the scope."""
        self.writer.depth = 1
        for name in {n: None for op in ops for n in self.bind_outputs(op)[1]}:
            if is_persistable(self.block, name):
                self.writer.emit(held(self.holder(name)), to=self.writer.local(name))

    def pause(self) -> None:
        """Write the `yield` between forward and backward, once."""
        self.writer.emit(Code("yield"))
        self.pauses = False

    def fetched(self, name: str) -> Code:
        """Return the expression for a fetched value; sparse gradients are made dense."""
        value = self.read(name, flows=False, base=True)
        is_rows = name in self.plan.rows.at_end and name not in self.made_whole
        return code("{}.to_dense()", value) if is_rows else value

    def write(self) -> list[Function]:
        """Write the function; return it and the functions of its segments."""
        sequence = self.plan.sequence
        writer = self.writer
        arguments = [writer.local(name).text for name in self.feeds]
        backward = [i for i, x in enumerate(sequence) if isinstance(x, BackwardCall)]
        writer.emit(Code(f"set_grad({bool(backward)})"))
        changed = changed_in_place(self.block)
        for name in self.feeds:
            if name in self.leaves:
                self.make_leaf(name)
            copy = code("{}.clone()", writer.local(name))
            if is_persistable(self.block, name):
                writer.store(self.holder(name), copy)
            elif name in changed:  # the feed is the caller's array
                writer.emit(copy, to=writer.local(name))
        guard: str | None = None
        guarded: list[Operator] = []
        for i, item in enumerate(sequence):
            if self.pauses and _is_backward(item):
                self.pause()
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
        self.end_guard(guarded)
        if self.pauses:
            self.pause()
        if not backward:
            self.boundary = len(writer.lines)
        fetched = listed(map(self.fetched, self.fetches))
        writer.emit(code("return [{}]", fetched))
        return [Function("step", arguments, writer.lines), *self.finish_segments()]


def _is_backward(item: Instruction) -> bool:
    if isinstance(item, BackwardCall):
        return True
    return any(op.op_role & OpRole.Backward for op in ops_of(item))


_numbers = itertools.count(1)


def lower(
    program: Program,
    feeds: list[str],
    fetches: list[str],
    scope: Scope,
    device: torch.device,
    *,
    with_lod: bool = False,
    checks_numbers: bool = False,
    pauses: bool = False,
) -> LoweredStep:
    """Lower a program for these feeds and fetches to a function over torch tensors.

    With `checks_numbers` the function raises a FloatingPointError at the first op whose results
    are not finite. With `pauses` it is a generator, which yields once between forward and backward.
    """
    binding = program.binding
    peers = None if binding.pipeline is None else binding.pipeline.peers
    ctx = OpContext(device, scope, binding.gradient_exchange, binding.servers, peers)
    work = _Lowering(program, feeds, fetches, scope, ctx, with_lod)
    work.pauses = pauses
    work.writer.checks_numbers = checks_numbers
    functions = work.write()
    writer = work.writer
    source, ops_of_line = render(functions)
    filename = f"<fleetx step {next(_numbers)}>"
    namespace: dict[str, Any] = {
        **writer.names,
        "ctx": ctx,
        "lod_call": call_with_lod,
        "keep": step_functions.keep_value,
        "cut": step_functions.cut_value,
        "finite": step_functions.check_finite,
        "as_rows": as_rows,
        "autograd_grad": step_functions.differentiate,
        "run_segment": choose_runner(
            offloads=binding.offloads_checkpoints and bool(work.segments), device=device.type
        ),
        "set_grad": torch_private.set_grad_enabled,
    }
    exec(compile(source, filename, "exec"), namespace)  # generated above from op definitions
    # Lets tracebacks and profilers show the lines of the generated function.
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    step = LoweredStep(
        function=functions[0],
        boundary=work.boundary,
        namespace=namespace,
        run=namespace["step"],
        source=source,
        feed_names=feeds,
        required=work.required,
        context=ctx,
        ops_of_line=ops_of_line,
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
