"""Models that are ready to train: each as a static program and as an ordinary `nn.Module`.

`static_model.py` says what a static model has; `weights.py` how weights move between files,
programs and modules. A name is imported when it is first used, so that a model costs only its own
imports.
"""

import importlib
from typing import Any

_NAMES = {
    "Resnet50": "resnet",
    "Resnet50Mlperf": "resnet",
    "StaticModel": "static_model",
}

__all__ = [*_NAMES]


def __getattr__(name: str) -> Any:
    """Import a model, or the file of one, on its first use."""
    if name in _NAMES.values():
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _NAMES:
        raise AttributeError(
            f"fleetx.applications has no model {name!r}; it has: {', '.join(sorted(_NAMES))}"
        )
    return getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)


def __dir__() -> list[str]:
    """List the models too, although they may not be loaded yet."""
    return sorted({*globals(), *_NAMES})
