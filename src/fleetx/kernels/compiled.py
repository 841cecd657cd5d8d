"""The compiled modules: which of them are available, and the consequences if one is missing.

They are compiled when the package is installed, if there is a compiler, and are part of wheels for
a platform. Each has a fallback in NumPy or torch, selected with `is_there` where the module is
imported: slower, with the same results.
"""

from __future__ import annotations

import importlib
import logging

_log = logging.getLogger("fleetx")

# The purpose of each module.
MODULES = {
    "fleetx.kernels._index": "ids of parameter servers",
    "fleetx.kernels._rows": "rows of parameter servers",
    "fleetx.kernels._layerwise": "LARS and LAMB",
    "fleetx.kernels._resample": "resizing of photographs",
    "fleetx.kernels._rounded": "averages in 8 or 4 bits",
    "fleetx.kernels._shm": "collectives in shared memory",
}

_NOT_COMPILED = "not compiled"
_missing: dict[str, str | None] = {}


def why_missing(name: str) -> str | None:
    """Return why a compiled module of MODULES cannot be used; None if it can."""
    if name not in _missing:
        try:
            importlib.import_module(name)
            _missing[name] = None
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            _missing[name] = _NOT_COMPILED
        except ImportError as error:  # it exists, but does not load on this system
            _missing[name] = str(error)
            _log.warning("%s is not used, slower code in Python runs instead: %s.", name, error)
    return _missing[name]


def is_there(name: str) -> bool:
    """Return whether a compiled module of MODULES can be used; otherwise use its fallback."""
    return why_missing(name) is None


def slower_because(*names: str) -> str | None:
    """Return a sentence about those of these modules that are missing; None if there are none."""
    missing = {name: reason for name in names if (reason := why_missing(name)) is not None}
    if not missing:
        return None
    what = ", ".join(f"{MODULES[name]} ({name}: {reason})" for name, reason in missing.items())
    return (
        f"Slower code in Python handles {what}. Install fleetx from a wheel for this platform, "
        "or with a C compiler; pip install -v shows the compiler's output."
    )
