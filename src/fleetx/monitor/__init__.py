"""Monitoring of a run: measurements of every worker, a progress line, event files, a timeline.

`for batch in monitor.watch(loader, epochs=3): …` shows the progress of a loop. With a log folder
(fleetrun --log_dir, or FLEETX_LOG_DIR) every worker records its steps, and `fleetx report` plots
them on a page; FLEETX_TIMELINE=1 records a timeline. Nothing is measured unless it is enabled.
"""

import importlib
from typing import Any

# Loaded on first use: `fleetx report` needs no PyTorch.
_NAMES = {
    "Progress": "progress",
    "Settings": "run",
    "current": "run",
    "epochs": "watching",
    "note": "watching",
    "start": "run",
    "stop": "run",
    "watch": "watching",
}

__all__ = [*_NAMES]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name in _NAMES:
        return getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
