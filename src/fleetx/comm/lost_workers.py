"""Explanation of collectives that fail because another worker is gone or hangs.

The collective libraries report a closed connection or a timeout from deep inside a backward pass;
the message added here names the usual cause.
"""

from __future__ import annotations

import sys
from types import TracebackType

_SIGNS = (
    "connection closed by peer",
    "connection reset by peer",
    "timed out waiting",
    "cannot be completed",
)
_EXPLANATION = (
    "Another worker has ended or hangs while this one waits for it. If it failed, its own "
    "log says why. If it only had fewer batches, or left out a call that all workers must make "
    "(fleet.save_checkpoint, fleet.synchronize_model): give all workers the same number of batches "
    "and the same calls. Where gradients are averaged in every step, `with fleet.join(model):` "
    "around the training loop allows fewer batches."
)


def explain_lost_workers() -> None:
    """Add the explanation to uncaught errors of lost workers."""
    show_before = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        text = str(error).lower()
        if isinstance(error, RuntimeError) and any(sign in text for sign in _SIGNS):
            error.add_note(_EXPLANATION)
        show_before(kind, error, trace)

    sys.excepthook = show
