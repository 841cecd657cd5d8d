"""Segments of forward ops that are recomputed in backward, as separate instructions.

A segment becomes one function (`codegen`), called through torch's activation checkpointing: the
tensors that autograd would save inside it are freed, and the function runs again in backward. It
contains only reproducible ops. Others, such as random ops, move before the
segment if they do not depend on it; otherwise they split it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint

from fleetx.static.graph.op_names import reads_of, sub_blocks, writes_of
from fleetx.static.graph.op_registry import get_op
from fleetx.static.graph.operator import Operator
from fleetx.static.lowering.backward_call import BackwardCall
from fleetx.static.lowering.fusion import FusedOp, ops_of

# Their result does not depend on the running statistics that they change in place.
_BATCH_NORMS = frozenset({"batch_norm", "sync_batch_norm", "inplace_abn"})


@dataclass
class SegmentCall:
    """Instructions that run as one function, a second time during backward."""

    number: int
    items: list[Operator | FusedOp] = field(default_factory=list)

    @property
    def ops(self) -> list[Operator]:
        """All ops of the segment, in order."""
        return [op for item in self.items for op in ops_of(item)]

    @property
    def inputs(self) -> list[str]:
        """The inputs of the segment, each name once."""
        made: set[str] = set()
        found: dict[str, None] = {}
        for op in self.ops:
            found.update(dict.fromkeys(n for n in op.input_arg_names if n not in made))
            made.update(op.output_arg_names)
        return list(found)

    @property
    def changed(self) -> set[str]:
        """Variables that ops of the segment change in place."""
        return {
            name
            for op in self.ops
            for source in get_op(op.type).inplace.values()
            for name in op.input(source)
        }


def find_segments(sequence: Sequence[Any], calls: list[BackwardCall]) -> list[Any]:
    """Return the sequence with recomputed ops replaced by SegmentCalls."""
    numbers = {uid: number for call in calls for uid, number in call.segments.items()}
    if not numbers:
        return list(sequence)
    flows = {uid for call in calls for uid in call.flows}
    result: list[Any] = []
    run = SegmentCall(-1)

    def close() -> None:
        nonlocal run
        follows = any(op.uid in flows for op in run.ops)
        result.extend([run] if follows else run.items)
        run = SegmentCall(-1)

    for item in sequence:
        number = _number(item, numbers)
        if number is not None:
            if run.items and run.number != number:
                close()
            run.number = number
            run.items.append(item)
        else:
            if run.items and not _is_independent(item, run):
                close()
            result.append(item)
    close()
    return result


def _number(item: Any, numbers: dict[int, int]) -> int | None:
    """Return the segment of an instruction; None if it runs only once."""
    if not isinstance(item, Operator | FusedOp) or getattr(item, "is_loss", False):
        return None
    ops = ops_of(item)
    found = {numbers.get(op.uid) for op in ops}
    return found.pop() if len(found) == 1 and all(map(_can_run_again, ops)) else None


def _can_run_again(op: Operator) -> bool:
    op_def = get_op(op.type)
    if op_def.side_effect or sub_blocks(op) or (op_def.random and not op.input("Seed")):
        return False
    return not op_def.inplace or op.type in _BATCH_NORMS


def _is_independent(item: Any, run: SegmentCall) -> bool:
    """Return whether an instruction may run before the segment so far."""
    if isinstance(item, BackwardCall):
        return False
    ops = ops_of(item)
    reads = {n for op in ops for n in reads_of(op)}
    writes = {n for op in ops for n in writes_of(op)}
    made = {n for op in run.ops for n in writes_of(op)}
    used = {n for op in run.ops for n in reads_of(op)}
    return not (reads & made or writes & (made | used))


def run_segment(
    function: Callable[..., tuple[Any, ...]],
    kept: int,
    changed: tuple[int, ...],
    *values: Any,
) -> tuple[Any, ...]:
    """Call a segment's function so that it is called again in backward.

    The first `kept` values are activations, held for the second call; the others are parameters
    and the like. Those at the positions `changed` are changed in place, the first time only.
    """
    fixed = values[kept:]
    is_first = True

    def body(*activations: Any) -> tuple[Any, ...]:
        nonlocal is_first
        rest = fixed
        if not is_first and changed:
            copied = list(fixed)
            for i in changed:
                copied[i - kept] = copied[i - kept].clone()
            rest = tuple(copied)
        is_first = False
        return function(*activations, *rest)

    outputs: tuple[Any, ...] = checkpoint(
        body,
        *values[:kept],
        use_reentrant=False,
        preserve_rng_state=False,  # nothing in a segment draws from the global generator
        determinism_check="none",
    )
    return outputs


def run_offloaded_segment(
    function: Callable[..., tuple[Any, ...]],
    kept: int,
    changed: tuple[int, ...],
    *values: Any,
) -> tuple[Any, ...]:
    """Run a segment as `run_segment` does, with the kept activations in host memory."""
    with save_on_cpu():
        return run_segment(function, kept, changed, *values)


def choose_runner(*, offloads: bool, device: str) -> Callable[..., tuple[Any, ...]]:
    """Return the function that runs segments on a type of device."""
    if not offloads:
        return run_segment
    if device == "cpu":
        raise ValueError(
            "enable_offload moves the checkpoints of recompute to host memory, but the program "
            "already runs there: set enable_offload to False, or run on another place."
        )
    return run_offloaded_segment
