"""FleetX: distributed training for PyTorch through the Fleet API.

Importing the package is cheap: parts such as ``fleetx.static`` (and with them PyTorch) are
loaded when they are first used.
"""

import importlib
from types import ModuleType
from typing import Any

__version__ = "0.1.0"

_PARTS = (
    "applications",
    "checkpoint",
    "comm",
    "data",
    "evaluation",
    "fleet",
    "integrations",
    "launch",
    "monitor",
    "ps",
    "serving",
    "static",
    "utils",
)

_NAMES = {
    "CPUDatasetTrainer": "applications.trainers",
    "CPUTrainer": "applications.trainers",
    "CountFilterEntry": "ps.tables.entries",
    "EvictionSpec": "ps.tables.row_rules",
    "MultiGPUTrainer": "applications.trainers",
    "ProbabilityEntry": "ps.tables.entries",
    "FrozenEmbedding": "ps.client.frozen_embedding",
    "SparseEmbedding": "ps.client.embedding",
    "freeze_embeddings": "ps.client.frozen_embedding",
    "load_embedding": "ps.client.frozen_embedding",
    "parse_train_configs": "applications.train_configs",
    "save_recommender": "serving.recommender",
    "save_delta": "ps.tables.table_delta",
}

__all__ = ["__version__", *_PARTS, *_NAMES]


def __getattr__(name: str) -> Any:
    """Import a part of the package on its first use."""
    if name in _PARTS:
        return _load(name)
    if name in _NAMES:
        return getattr(_load(_NAMES[name]), name)
    raise AttributeError(
        f"package 'fleetx' has no attribute {name!r}; its parts are: {', '.join(_PARTS)}"
    )


def _load(part: str) -> ModuleType:
    from fleetx import collector

    with collector.paused():
        return importlib.import_module(f"{__name__}.{part}")


def __dir__() -> list[str]:
    """List the parts too, although they may not be loaded yet."""
    return sorted({*globals(), *_PARTS, *_NAMES})
