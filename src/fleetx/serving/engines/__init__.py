"""Engines that run a model: FleetX's executor, torch's exported programs or ONNX Runtime.

Each loader returns an `Engine`; its dependencies are imported when a model of its kind is loaded.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

from fleetx.checkpoint.file_errors import FormatError
from fleetx.serving.engines.engine import Engine
from fleetx.serving.model_files import kind_of
from fleetx.serving.table_options import TableOptions

__all__ = ["Engine", "load_engine", "prepare_engine"]


def prepare_engine(path: Path) -> None:
    """Import what loading and running the model in this file will need."""
    if kind_of(path) == "pt2":
        from fleetx.serving.engines import pt2

        pt2.prepare()


def load_engine(path: Path, *, threads: int | None, tables: TableOptions) -> Engine:
    """Load the model in a file returned by `find_model`, to run with this many threads."""
    kind = kind_of(path)
    load: Callable[..., Engine] = importlib.import_module(f"{__name__}.{kind}").load
    if kind == "pt2":
        return load(path, threads, tables)
    if tables.reader is not None or tables.cache_bytes:
        raise FormatError(
            str(path),
            "has no tables: omit --servers and --cache_mb, which are for models exported by "
            "save_recommender.",
        )
    return load(path, threads)
