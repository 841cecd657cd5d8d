"""Engines that run a model: FleetX's executor, torch's exported programs or ONNX Runtime.

Each loader returns an `Engine`; its dependencies are imported when a model of its kind is loaded.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from fleetx.serving.engines.engine import Engine
from fleetx.serving.model_files import kind_of

__all__ = ["Engine", "load_engine"]


def load_engine(path: Path, *, threads: int | None = None) -> Engine:
    """Load the model in a file returned by `find_model`, to run with this many threads."""
    engine: Engine = importlib.import_module(f"{__name__}.{kind_of(path)}").load(path, threads)
    return engine
