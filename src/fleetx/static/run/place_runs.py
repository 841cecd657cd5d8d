"""One batch on several places of one process: `CompiledProgram.with_data_parallel(places=...)`.

Every place computes its part of the batch and its fetches, one after the other on the same device.
The loss gradient is divided by the number of places, gradients are summed, and the updates run
once. Persistable variables that the parts write (batch norm statistics) keep the values of the
first place, as Paddle saves them. Programs that train with servers or other workers
run undivided.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fleetx.static.errors import EOFException, FeedError
from fleetx.static.graph.op_names import sub_blocks
from fleetx.static.graph.operator import Operator, OpRole
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Parameter
from fleetx.static.readers.lod_tensor import LoDTensor, concat_lod_tensors, split_sequences
from fleetx.static.run.scope import Scope

_divided: weakref.WeakKeyDictionary[Program, dict[int, DividedProgram]] = (
    weakref.WeakKeyDictionary()
)


class DividedProgram:
    """A program divided in two: forward and backward per place, and the updates, which run once.

    Attributes:
        version: the version of the original program.
        each: forward and backward pass.
        updates: the rest; None if nothing is trained.
        summed: the gradients of `each` that `updates` reads.
        possible: whether the program can be divided: sparse gradients, and those accumulated over
            several runs, cannot be summed over places.
    """

    def __init__(self, program: Program, places: int) -> None:
        self.version, self.places = program.version, places
        ops = program.global_block().ops
        once = _run_once(program)
        self.each = _with_ops(program, [not o for o in once])
        _divide_loss_gradient(self.each, places)
        self.updates = _with_ops(program, once) if any(once) else None
        written = _written(self.each.global_block().ops)
        read = [n for op, o in zip(ops, once, strict=True) if o for n in op.input_arg_names]
        block = program.global_block()
        self.read_once = set(read)
        self.summed = [n for n in dict.fromkeys(read) if n in written]
        self.kept = [n for n in written if (v := block.find_var(n)) is not None and v.persistable]
        self.by_updates = set(_written([op for op, o in zip(ops, once, strict=True) if o]))
        self.possible = self.updates is None or not any(
            sub_blocks(op) if op.op_role & OpRole.Optimize else op.attrs.get("is_sparse")
            for op in ops
        )


def divided(program: Any, places: int) -> DividedProgram | None:
    """Return the two parts of a program that runs on several places, None if it runs as one."""
    binding = program.binding
    bound = (binding.servers, binding.decision, binding.gradient_exchange, binding.measured)
    if places < 2 or any(b is not None for b in (*bound, binding.runs_as, binding.first_run)):
        return None
    cache = _divided.setdefault(program, {})
    found = cache.get(places)
    if found is None or found.version != program.version:
        _check_blocks(program, places)
        found = cache[places] = DividedProgram(program, places)
    return found if found.possible else None


def run_on_places(
    executor: Any,
    parts: DividedProgram,
    feeds: Sequence[Mapping[str, Any]],
    fetches: Sequence[str],
    scope: Scope,
    return_numpy: bool,
    return_merged: bool,
) -> list[Any]:
    """Run a feed per place, then the updates; return fetches concatenated, or lists by place."""
    late = [name for name in fetches if name in parts.by_updates]
    early = [name for name in fetches if name not in parts.by_updates]
    before = _values(scope, parts.kept)
    results: list[list[Any]] = []
    sums: list[Any] = []
    for feed in reversed(feeds):  # the first place runs last, so that its statistics are kept
        _restore(scope, before)
        both = executor.run(
            parts.each, feed, [*early, *parts.summed], scope=scope, return_numpy=False
        )
        results.insert(0, both[: len(early)])
        grads = [np.asarray(value) for value in both[len(early) :]]
        sums = [a + b for a, b in zip(sums, grads, strict=True)] if sums else grads
    if len(feeds) < parts.places:  # the batch has too few rows for all places
        sums = [(value * (parts.places / len(feeds))).astype(value.dtype) for value in sums]
    total = dict(zip(parts.summed, sums, strict=True))
    after: list[Any] = []
    if parts.updates is not None:
        fed = {name: value for name, value in feeds[0].items() if name in parts.read_once}
        after = executor.run(parts.updates, fed | total, late, scope=scope, return_numpy=False)
    found = {name: [row[i] for row in results] for i, name in enumerate(early)}
    same = {name: LoDTensor(total[name]) for name in early if name in total}
    same |= dict(zip(late, after, strict=True))
    found |= {name: [value] * len(feeds) for name, value in same.items()}
    if return_merged:
        return [_as_asked(_joined(found[name]), return_numpy) for name in fetches]
    return [[_as_asked(value, return_numpy) for value in found[name]] for name in fetches]


def feeds_by_place(program: Program, feed: Any, places: int) -> list[dict[str, Any]]:
    """Return a feed per place: the parts of one feed, a given list, or batches of readers."""
    if isinstance(feed, list | tuple):
        feeds = [dict(part) for part in feed]
    else:
        feeds = _split_feed(feed or {}, places)
    for reader in program.binding.readers:
        if not all(name in part for part in feeds for name in reader.output_names):
            batches = _batches(reader, places)
            feeds = [feeds[i % len(feeds)] | batch for i, batch in enumerate(batches)]
    return feeds


def _batches(reader: Any, places: int) -> list[dict[str, Any]]:
    """Return a batch per place; fewer at the end, if the reader does not drop the last ones."""
    found: list[dict[str, Any]] = []
    while len(found) < places:
        try:
            found.append(reader.next_feed())
        except EOFException:
            if not found or reader.reader.drop_last:
                raise
            break
    return found


def _split_feed(feed: Mapping[str, Any], places: int) -> list[dict[str, Any]]:
    pieces = {name: _pieces(value, places) for name, value in feed.items()}
    count = max(map(len, pieces.values()), default=places)
    for name, values in pieces.items():
        if len(values) == 1:  # a single row, such as a learning rate, is fed to all places
            pieces[name] = values * count
        elif len(values) != count:
            raise FeedError(
                f"feed of {name!r} has rows for {len(values)} places, others for {count}: the "
                f"batch is divided by rows among {places} places, so all must have as many rows."
            )
    return [{name: values[i] for name, values in pieces.items()} for i in range(count)]


def _pieces(value: Any, places: int) -> list[Any]:
    """Return the rows, or sequences, in parts of equal size; the last one may be smaller."""
    tensor = value if isinstance(value, LoDTensor) else LoDTensor(np.asarray(value))
    if not tensor.shape():
        return [value]
    return split_sequences(tensor, places) or [tensor]


def _joined(values: Sequence[Any]) -> Any:
    if isinstance(values[0], list):  # an array of tensors: element by element
        return [concat_lod_tensors(parts) for parts in zip(*values, strict=True)]
    if not values[0].shape():
        return LoDTensor(np.stack([np.asarray(value) for value in values]))
    return concat_lod_tensors(values)


def _as_asked(value: Any, return_numpy: bool) -> Any:
    if isinstance(value, list):
        return [_as_asked(item, return_numpy) for item in value]
    return np.asarray(value) if return_numpy else value


def _run_once(program: Program) -> list[bool]:
    """Return for every op whether it runs once: schedules, updates, and ops that depend on them."""
    block = program.global_block()
    ends = [i for i, op in enumerate(block.ops) if op.backward_id is not None]
    last = max(ends, default=len(block.ops))
    changed: set[str] = set()
    found = []
    for i, op in enumerate(block.ops):
        updates = bool(op.op_role & OpRole.Optimize) or any(
            isinstance(block.find_var(name), Parameter) for name in op.output_arg_names
        )
        once = bool(op.op_role & OpRole.LRSched) or (
            i > last and (updates or not changed.isdisjoint(op.input_arg_names))
        )
        if once:
            changed.update(op.output_arg_names)
        found.append(once)
    return found


def _with_ops(program: Program, chosen: Sequence[bool]) -> Program:
    """Return a copy with some of the ops of the first block."""
    copy = program.clone()
    block = copy.global_block()
    block.ops[:] = [op for op, keep in zip(block.ops, chosen, strict=True) if keep]
    copy.bump_version()
    copy.binding.readers = []  # batches are read beforehand, one per place
    return copy


def _divide_loss_gradient(program: Program, places: int) -> None:
    for op in program.global_block().ops:
        if op.type == "fill_constant" and op.op_role == OpRole.Backward | OpRole.Loss:
            op.set_attr("value", op.attr("value") / places)


def _check_blocks(program: Program, places: int) -> None:
    """Reject updates within a branch or loop of the network, as Paddle does."""
    for op in program.global_block().ops:
        if op.op_role & OpRole.Optimize:
            continue  # a block of an optimizer, such as one that merges gradients
        if any(o.op_role & OpRole.Optimize for block in sub_blocks(op) for o in block.ops):
            raise NotImplementedError(
                f"the program minimizes a loss within a branch or loop and has {places} places: "
                "their gradients cannot be summed there; run it on one place."
            )


def _written(ops: Sequence[Operator]) -> dict[str, None]:
    return dict.fromkeys(name for op in ops for name in op.output_arg_names)


def _values(scope: Scope, names: Sequence[str]) -> dict[str, Any]:
    held = {name: scope.find_var(name) for name in names}
    return {
        name: np.array(var.get_tensor())
        for name, var in held.items()
        if var is not None and var.get_tensor()._is_initialized()
    }


def _restore(scope: Scope, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        var = scope.find_var(name)
        assert var is not None  # it existed before the run
        var.get_tensor().set(value)
