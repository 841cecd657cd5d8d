"""Data generators without PyTorch: a dataset's pipe command starts in tenths of a second.

The command (`python my_generator.py`) starts once per file and needs little more than
`fleet.MultiSlotDataGenerator`, but its imports (`paddle.fluid.incubate.data_generator`,
`paddle.distributed.fleet`) would load the whole engine. In a process started by a dataset, the
parent packages are empty at first; the first name other than a few known ones loads them.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from fleetx.runtime import environment
from paddle._aliases import alias_source
from paddle._coverage import missing, spec_of
from paddle._finder import SOURCES, Filled

_PACKAGES = frozenset(
    {"paddle.fluid", "paddle.fluid.incubate", "paddle.distributed", "paddle.distributed.fleet"}
)
_GENERATORS = frozenset({"DataGenerator", "MultiSlotDataGenerator", "MultiSlotStringDataGenerator"})
_FLEET = "paddle.distributed.fleet"


def is_wanted() -> bool:
    """Return whether this process converts the files of a dataset."""
    return environment.is_pipe_command()


def begin(names: dict[str, Any]) -> Callable[[str], Any]:
    """Make the packages empty at first; return the `__getattr__` of `paddle`, given its globals."""
    SOURCES.extend([_light_source, alias_source])

    def load() -> None:
        whole = importlib.import_module("paddle._whole")
        names.update({name: getattr(whole, name) for name in (*whole.__all__, "__version__")})
        names["__all__"] = whole.__all__
        names["__getattr__"] = missing("paddle")

    return _getattr_of("paddle", names, load)


def _getattr_of(
    package: str, names: dict[str, Any], load: Callable[[], None]
) -> Callable[[str], Any]:
    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if package == _FLEET and name in _GENERATORS:
            return getattr(importlib.import_module("fleetx.data.data_generator"), name)
        full = f"{package}.{name}"
        if PathFinder.find_spec(full, names["__path__"]) is not None:
            return importlib.import_module(full)
        names.pop("__getattr__")
        SOURCES[:] = [source for source in SOURCES if source is not _light_source]
        load()
        return getattr(sys.modules[package], name)  # noqa: TID251 - the module itself

    return __getattr__


def _light_source(fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """Return the spec of one of the parent packages, which is empty."""
    if fullname not in _PACKAGES:
        return None
    spec = spec_of(fullname, path)
    assert spec is not None
    assert spec.loader is not None
    whole = spec.loader.exec_module

    def fill(module: ModuleType) -> None:
        names = vars(module)
        names["__getattr__"] = _getattr_of(module.__name__, names, lambda: whole(module))

    spec.loader = Filled(fill)
    return spec
