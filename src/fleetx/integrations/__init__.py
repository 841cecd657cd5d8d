"""Fleet in the training loops of other libraries: Accelerate, transformers, Lightning and Fabric.

Each adapter is small: it inserts Fleet where the library would wrap the model in DDP, and leaves
data, logging, progress and checkpoints to the library. A name is imported on its first use, so that
only the library in use has to be installed.
"""

import importlib
from typing import Any

_NAMES = {
    "FleetFabricStrategy": ("fabric_strategy", "lightning"),
    "FleetPlugin": ("accelerate_plugin", "accelerate"),
    "FleetStrategy": ("lightning_strategy", "lightning"),
    "FleetTrainer": ("transformers_trainer", "transformers"),
    "FleetTrainerMixin": ("transformers_trainer", "transformers"),
}

__all__ = list(_NAMES)


def __getattr__(name: str) -> Any:
    """Import an adapter, and with it its library, on its first use."""
    if name not in _NAMES:
        raise AttributeError(
            f"package 'fleetx.integrations' has no attribute {name!r}; it has {', '.join(_NAMES)}"
        )
    module, extra = _NAMES[name]
    try:
        return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("fleetx"):
            raise
        raise ModuleNotFoundError(
            f"fleetx.integrations.{name} needs {error.name}: pip install 'fleetx[{extra}]'.",
            name=error.name,
        ) from error


def __dir__() -> list[str]:
    """List the adapters, although they may not be imported yet."""
    return sorted({*globals(), *_NAMES})
