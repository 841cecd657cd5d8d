"""Looking at a run: measurements of every worker, a progress line, event files, a timeline.

`for batch in monitor.watch(loader, epochs=3): …` shows the progress of a loop. With a log folder
(fleetrun --log_dir, or FLEETX_LOG_DIR) every worker keeps its steps, and `fleetx report` draws
them on a page; FLEETX_TIMELINE=1 keeps a timeline. Where nobody asks, nothing is measured.
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
    """Load a public name on its first use."""
    if name in _NAMES:
        return getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
