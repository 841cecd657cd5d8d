"""Error messages of failed runs: the op, its variables, and what was wrong with their values.

Kernels check indices, but their messages say little ("index out of range in self"). After a failure
the op's inputs are searched for an index that is out of range; successful runs have no overhead.
"""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fleetx.static.errors import EnforceNotMet, ExecutionError, NotFiniteError
from fleetx.static.graph.op_registry import EMPTY_NAME
from fleetx.static.graph.operator import Operator
from fleetx.static.lowering import LoweredStep

# Packages whose failures are not caused by values.
_TALKING = ("fleetx.comm.", "fleetx.ps.")

Find = Callable[[str], Any]
"""Returns the value of a variable, None if it is not known."""


def explain(error: Exception, step: LoweredStep, feed: Mapping[str, Any]) -> Exception:
    """Return an error that says which op failed, on which variables, and why."""
    empty = [n for n, h in step.holders.items() if h.value is None]
    line, values = -1, dict[str, Any]()
    for frame, number in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename == step.filename:
            line, values = number, frame.f_locals
    ops = step.ops_of_line.get(line, ())
    op = ops[0] if ops else None
    if isinstance(error, FloatingPointError) and not isinstance(error, NotFiniteError):
        where = "the backward pass" if op is None else _described(op)
        return EnforceNotMet(f"{where}: {error} (FLAGS_check_nan_inf is set).")
    if empty and (op is None or any(n in empty for n in op.input_arg_names)):
        return ExecutionError(
            f"variable {empty[0]!r} has no value yet: run the startup program first, "
            "or load the variable, in the scope you run in."
        )

    def find(name: str) -> Any:
        local = values.get(step.local_names.get(name, ""))
        if local is not None:
            return local
        return step.holders[name].value if name in step.holders else feed.get(name)

    # A compiled step has no lines: all its ops are searched.
    for each in ops or itertools.chain.from_iterable(step.ops_of_line.values()):
        reason = wrong_index(each, find)
        if reason is not None:
            return _failed(each, reason)
    empty_feed = next((n for n, value in feed.items() if not value.numel()), None)
    if empty_feed is not None:
        shape = tuple(feed[empty_feed].shape)
        error = ExecutionError(f"{error} ({empty_feed!r} was fed with no values, shape {shape})")
    if op is None:
        return error if isinstance(error, RuntimeError) else ExecutionError(str(error))
    return _failed(op, error)


def is_of_other_processes(error: Exception) -> bool:
    """Return whether a run failed in communication with other processes."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(f.f_globals.get("__name__", "").startswith(_TALKING) for f in frames)


def explain_op(error: Exception, op: Operator, find: Find) -> ExecutionError:
    """Return an error that says why an op, run alone, has failed."""
    return _failed(op, wrong_index(op, find) or error)


def _failed(op: Operator, reason: object) -> ExecutionError:
    return ExecutionError(f"{_described(op)} failed: {reason}")


def _described(op: Operator) -> str:
    ins = ", ".join(n for n in op.input_arg_names if n != EMPTY_NAME)
    outs = ", ".join(n for n in op.output_arg_names if n != EMPTY_NAME)
    return f"op {op.type!r} ({ins} -> {outs})"


@dataclass(frozen=True)
class _Indices:
    """Which slot of an op holds indices, and what they are indices of."""

    slot: str
    of: str
    axis: str | int = 0
    """The dimension of `of`, or the attribute that names it."""


_INDICES = {
    "lookup_table": _Indices("Ids", "W"),
    "lookup_table_v2": _Indices("Ids", "W"),
    "fused_embedding_seq_pool": _Indices("Ids", "W"),
    "cross_entropy": _Indices("Label", "X", -1),
    "cross_entropy2": _Indices("Label", "X", -1),
    "bpr_loss": _Indices("Label", "X", -1),
    "softmax_with_cross_entropy": _Indices("Label", "Logits", "axis"),
    "nll_loss": _Indices("Label", "X", 1),
    "gather": _Indices("Index", "X", "axis"),
    "index_select": _Indices("Index", "X", "dim"),
    "index_sample": _Indices("Index", "X", 1),
    "take_along_axis": _Indices("Index", "Input", "Axis"),
    "put_along_axis": _Indices("Index", "Input", "Axis"),
    "index_add": _Indices("Index", "X", "axis"),
    "scatter": _Indices("Ids", "X"),
    "hierarchical_sigmoid": _Indices("Label", "num_classes"),
    "nce": _Indices("Label", "num_total_classes"),
    "one_hot": _Indices("X", "depth"),
    "one_hot_v2": _Indices("X", "depth"),
}


def wrong_index(op: Operator, find: Find) -> str | None:
    """Return a sentence about an index of an op that is out of range, or None."""
    known = _INDICES.get(op.type)
    if known is None or not op.input(known.slot):
        return None
    name = op.input(known.slot)[0]
    indices = find(name)
    if not isinstance(indices, Tensor) or indices.is_floating_point() or not indices.numel():
        return None
    limit, what = _limit(op, known, find)
    if limit is None:
        return None
    if op.has_attr("ignore_index"):
        indices = indices[indices != op.attr("ignore_index")]
    outside = indices[(indices < 0) | (indices >= limit)]
    if not outside.numel():
        return None
    return (
        f"{name!r} holds {int(outside.reshape(-1)[0])}, which is outside {what}: "
        f"indices go from 0 to {limit - 1}."
    )


def _limit(op: Operator, known: _Indices, find: Find) -> tuple[int | None, str]:
    """Return the size of the indexed dimension, and its description."""
    if not op.input(known.of):
        if not op.has_attr(known.of):
            return None, ""
        count = int(op.attr(known.of))
        return (count if count > 0 else None), f"the {count} classes"
    name = op.input(known.of)[0]
    source = find(name)
    axis = op.attr(known.axis) if isinstance(known.axis, str) else known.axis
    if not isinstance(source, Tensor):
        source = op.block.find_var(name)  # inside a fused op: the declared shape
    if source is None or not source.shape or source.shape[axis] < 0:
        return None, ""
    count, shape = source.shape[axis], tuple(source.shape)
    if known.of == "W":
        return count, f"the table {name!r} of {count} rows"
    return count, f"dimension {axis % len(shape)} of {name!r}, of shape {shape}"
