"""Console output of the launcher: log lines in Fleet's format on stderr, blocks without a prefix.

The workers' own output goes to stdout (see `output.py`), so the two can be told apart.
"""

from __future__ import annotations

import logging
import os
import sys

_FORMAT = "%(levelname)s %(asctime)s %(filename)s:%(lineno)d] %(message)s"

log = logging.getLogger("fleetx.launch")


def set_up(level: int = logging.INFO) -> None:
    """Send the launcher's log lines to stderr exactly once, independent of the root logger."""
    log.setLevel(level)
    log.propagate = False
    if not log.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter(_FORMAT))
        log.addHandler(handler)


def width() -> int | None:
    """Return the width of the terminal that log lines go to; None if they go elsewhere."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):  # a file, a pipe, or closed
        return None


def block(text: str) -> None:
    """Print text without a log prefix: tables, tracebacks."""
    print(text, file=sys.stderr, flush=True)
