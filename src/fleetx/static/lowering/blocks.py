"""Execution of control flow bodies, op by op, and the context of ops while a program runs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from fleetx.comm.point_to_point import Peers
from fleetx.static.graph.block import Block
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_registry import EMPTY_NAME, SKIP_UPDATE, get_op
from fleetx.static.graph.operator import Operator
from fleetx.static.lowering.fusion import group_updates
from fleetx.static.lowering.needed_ops import MARKERS
from fleetx.static.lowering.row_ops import ROW_OPS, call_on_rows, makes_rows
from fleetx.static.run.scope import Scope
from fleetx.static.run.server_link import Servers


class OpContext:
    """The context of ops during a run."""

    is_meta = False

    def __init__(
        self,
        device: torch.device,
        scope: Scope,
        exchange: Any = None,
        servers: Servers | None = None,
        peers: Peers | None = None,
    ) -> None:
        self.device = device
        self.scope = scope
        self.exchange = exchange  # the exchange of gradients, if the program has one
        self.servers = servers  # the connection to parameter servers, if the program has one
        self.peers = peers  # the other stages, if the program is one of a pipeline
        self.lods: dict[str, Any] = {}  # offsets of variable-length values in this run, by name
        self._runners: dict[tuple[int, int], list[BoundOp | _BoundGroup]] = {}

    def run_block(self, block: Block, values: dict[str, Any]) -> dict[str, Any]:
        """Run a block with the given outer values; return everything it wrote, by name."""
        key = (id(block), block.program._version)
        bound = self._runners.get(key)
        if bound is None:
            items = group_updates([op for op in block.ops if op.type not in MARKERS])
            bound = self._runners[key] = [
                _BoundGroup(x, self) if isinstance(x, list) else BoundOp(x, self) for x in items
            ]
        known = dict(values)
        written: dict[str, Any] = {}
        for item in bound:
            item.run(known, written, self)
        return written


class BoundOp:
    """An op of an inner block, or a single one, bound to be called with values by name."""

    def __init__(self, op: Operator, ctx: OpContext, *, alone: bool = False) -> None:
        self.op = op
        self.op_def = get_op(op.type)
        self.call = bind_op(op, ctx, alone=alone)
        self.rows = _inputs_of_rows(op)
        self.on_rows: Callable[..., Any] | None = None
        row_op = ROW_OPS.get(op.type)
        if self.rows and row_op is not None and row_op.accepts(op, self.rows, op.block):
            self.on_rows = bind_op(op, ctx, on_rows=True)
        self.inputs = [(s.many, op.input(s.name)) for s in self.op_def.inputs]
        self.outputs = [(s.many, op.output(s.name)) for s in self.op_def.outputs]
        # A name per argument (None if absent), unless one is a list or may be sparse.
        self.names: list[str | None] | None = None
        if not self.rows and not any(many for many, _ in self.inputs):
            firsts = [names[0] if names else EMPTY_NAME for _, names in self.inputs]
            self.names = [None if name == EMPTY_NAME else name for name in firsts]
        self.skip = next(iter(op.input(SKIP_UPDATE)), None)
        self.persistable: set[str] = set()
        self.stopped: set[str] = set()
        for name in op.output_arg_names:
            var = op.block.find_var(name)
            if var is not None and var.persistable:
                self.persistable.add(name)
            if var is not None and var.stop_gradient:
                self.stopped.add(name)

    def run(self, known: dict[str, Any], written: dict[str, Any], ctx: OpContext) -> None:
        """Run the op on known values; add its results to them and to those written."""
        if self.is_left_out(known, ctx):
            return
        call = self.call
        if self.on_rows is not None and all(self._is_rows(name, known, ctx) for name in self.rows):
            call = self.on_rows
        result = call_with_lod(self.op, self.op_def, call, self.arguments(known, ctx), ctx)
        self.keep(result, known, written, ctx)

    def is_left_out(self, known: dict[str, Any], ctx: OpContext) -> bool:
        """Return whether this update is skipped."""
        return self.skip is not None and bool(self._value(self.skip, known, ctx))

    def arguments(self, known: dict[str, Any], ctx: OpContext) -> list[Any]:
        """Return the values of the slots, known ones or from the scope."""
        if self.names is not None:
            try:
                return [None if name is None else known[name] for name in self.names]
            except KeyError:
                pass  # one of them is in the scope
        args: list[Any] = []
        for many, names in self.inputs:
            row = [None if n == EMPTY_NAME else self._value(n, known, ctx) for n in names]
            args.append(row if many else (row[0] if row else None))
        return args

    def keep(
        self, result: Any, known: dict[str, Any], written: dict[str, Any], ctx: OpContext
    ) -> None:
        """Store the results by name; those of persistable variables also in the scope."""
        rows = (result,) if len(self.outputs) == 1 else result
        for (many, names), row in zip(self.outputs, rows, strict=True):
            values = row if many and isinstance(row, list) else [row]
            for name, value in zip(names, values, strict=False):
                if value is None or name == EMPTY_NAME:
                    continue
                if name in self.stopped and isinstance(value, torch.Tensor):
                    value = value.detach()
                known[name] = written[name] = value
                if name in self.persistable:
                    keep = value.detach() if isinstance(value, torch.Tensor) else value
                    ctx.scope.var(name).value = keep

    def _value(self, name: str, known: dict[str, Any], ctx: OpContext) -> Any:
        value = self._found(name, known, ctx)
        return value.to_dense() if name in self.rows and self.on_rows is None else value

    def _is_rows(self, name: str, known: dict[str, Any], ctx: OpContext) -> bool:
        value = self._found(name, known, ctx)
        return isinstance(value, torch.Tensor) and value.is_sparse

    def _found(self, name: str, known: dict[str, Any], ctx: OpContext) -> Any:
        if name in known:
            return known[name]
        holder = ctx.scope.find_var(name)
        if holder is None or holder.value is None:
            var = self.op.block.find_var(name)
            if var is not None and var.dtype is None:
                return None  # e.g. an array, which its first write creates
            if any(
                name == n
                for slot in self.op_def.inputs
                if slot.optional
                for n in self.op.input(slot.name)
            ):
                return None
            raise RuntimeError(
                f"op {self.op.type!r} in an inner block reads {name!r}, which has no value yet."
            )
        return holder.value


def _inputs_of_rows(op: Operator) -> set[str]:
    """Return the inputs that are declared sparse; a value may still be dense."""
    found = ((name, op.block.find_var(name)) for name in op.input_arg_names)
    return {n for n, var in found if var is not None and var.type == VarType.SELECTED_ROWS}


class _BoundGroup:
    """Ops of an inner block that differ only in their variables, bound for one fused call."""

    def __init__(self, ops: list[Operator], ctx: OpContext) -> None:
        self.members = [BoundOp(op, ctx) for op in ops]
        self.call = bind_group(ops, ctx)

    def run(self, known: dict[str, Any], written: dict[str, Any], ctx: OpContext) -> None:
        members = [member for member in self.members if not member.is_left_out(known, ctx)]
        if not members:
            return
        rows = [tuple(member.arguments(known, ctx)) for member in members]
        for member, result in zip(members, self.call(rows), strict=True):
            member.keep(result, known, written, ctx)


def bind_group(ops: list[Operator], ctx: OpContext) -> Callable[..., list[Any]]:
    """Return the function of ops that differ only in their variables, for one fused call."""
    op_def = get_op(ops[0].type)
    assert op_def.fused is not None
    attrs = {k: v for k, v in ops[0].attrs.items() if k in op_def.names}
    if op_def.needs_ctx:
        attrs["ctx"] = ctx
    return functools.partial(op_def.fused, **attrs)


def bind_op(
    op: Operator, ctx: OpContext, *, on_rows: bool = False, alone: bool = False
) -> Callable[..., Any]:
    """Return the op's function with attributes, context and names filled in, all but offsets.

    With `on_rows`, it takes and returns sparse gradients. With `alone`, it is the function for an
    op that runs alone.
    """
    op_def = get_op(op.type)
    attrs = dict(op.attrs)
    if makes_rows(op):
        attrs["is_sparse"] = on_rows
    if op_def.needs_ctx:
        attrs["ctx"] = ctx
    if "names" in op_def.names:
        attrs["names"] = {"inputs": op.inputs, "outputs": op.outputs}
    if op_def.needs_lod:
        attrs.pop("lod", None)
    call = op_def.bind(attrs, alone=alone)
    return call_on_rows(call, op, ctx) if on_rows else call


def call_with_lod(
    op: Operator, op_def: Any, call: Callable[..., Any], args: list[Any], ctx: OpContext
) -> Any:
    """Call an op and track the offsets of variable-length results."""
    lods = ctx.lods
    if op_def.needs_lod:
        given = {s.name: [lods.get(n) for n in op.input(s.name)] for s in op_def.inputs}
        result = call(*args, lod=given)
    else:
        result = call(*args)
        if not lods and not _brings_lod(result):
            return result
    shared = None
    if op_def.lod == "share":
        shared = next((lods[n] for n in op.input_arg_names if lods.get(n)), None)
    elif callable(op_def.lod):
        shared = op_def.lod(op, lods)
    rows = [result] if len(op_def.outputs) == 1 else list(result)
    for i, (slot, row) in enumerate(zip(op_def.outputs, rows, strict=True)):
        many = isinstance(row, list) and slot.many
        values = list(row) if many else [row]
        for j, (name, value) in enumerate(zip(op.output(slot.name), values, strict=False)):
            if _brings_lod(value):
                lods[name] = value.lod
                values[j] = value.tensor
            elif shared and isinstance(value, torch.Tensor) and _fits(value, shared):
                lods[name] = shared
            else:
                lods.pop(name, None)
        rows[i] = values if many else values[0]
    return rows[0] if len(op_def.outputs) == 1 else tuple(rows)


def _brings_lod(result: Any) -> bool:
    """Return whether a result, or one of several, is a WithLod."""
    if type(result) is torch.Tensor:
        return False
    if hasattr(result, "lod") and hasattr(result, "tensor"):
        return True
    return type(result) is tuple and any(map(_brings_lod, result))


def _fits(value: torch.Tensor, lod: Any) -> bool:
    return value.dim() > 0 and value.shape[0] == lod[-1][-1]
