"""Runs of training programs that count only if others decide so, as in an elastic job.

The decision is made by an object attached to the program; this package has no access to other
workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from fleetx.static.graph.dtypes import to_numpy
from fleetx.static.graph.program import Program
from fleetx.static.run.scope import Scope


class RunDecision(Protocol):
    """Decides together with other workers whether a run of a program counts."""

    def begin(self, program: Program, scope: Scope) -> None:
        """Prepare the scope for a run: undo the changes of a run that did not count."""

    def run(self, compute: Callable[[], Any], without_result: Callable[[], Any]) -> Any:
        """Return what `compute` returns, or if it was aborted, what `without_result` returns."""


def decision_of(program: Program) -> RunDecision | None:
    """Return the object that decides whether a run counts; None if every run does."""
    decision: RunDecision | None = program.binding.decision
    trains = any(op.backward_id is not None for op in program.global_block().ops)
    return decision if trains else None


def without_result(
    program: Program, fetches: Sequence[str], feed: Mapping[str, Any]
) -> list[np.ndarray]:
    """Return the fetches of an aborted run: NaN, or zeros for integers."""
    batch = max((len(value) for value in feed.values() if np.ndim(value)), default=1)
    found = []
    for name in fetches:
        variable = program.global_block().var(name)
        shape = [batch if size < 0 else size for size in variable.shape]
        dtype = to_numpy(variable.dtype)
        found.append(np.full(shape, np.nan if dtype.kind == "f" else 0, dtype))
    return found
