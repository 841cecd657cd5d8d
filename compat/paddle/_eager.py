"""paddle.fluid.dygraph: eager mode, which FleetX leaves to PyTorch.

Files with static and eager code import its names at their top, so the names can be imported; using
one raises an error. The modules are created when they are imported, and are empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

from paddle._coverage import sentence
from paddle._finder import Filled

PREFIX = "paddle.fluid.dygraph"


class EagerModeError(AttributeError, RuntimeError):
    """An error for the use of eager mode."""


def _refused(full_name: str) -> type:
    """Return a placeholder class for a name of eager mode: creating or calling it fails."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise EagerModeError(sentence(full_name))

    return type(
        full_name.rpartition(".")[2], (), {"__init__": __init__, "__doc__": sentence(full_name)}
    )


def enabled() -> bool:
    """Return whether eager mode is on: never."""
    return False


def no_grad(func: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return a decorated function unchanged; without one, raise an error."""
    if func is None:
        raise EagerModeError(sentence(f"{PREFIX}.no_grad"))
    return func


def _fill(module: ModuleType) -> None:
    name = module.__name__

    def __getattr__(attribute: str) -> type:
        if attribute.startswith("__"):
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        return _refused(f"{name}.{attribute}")

    vars(module).update(__getattr__=__getattr__, enabled=enabled, no_grad=no_grad)


def eager_source(fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """Return the spec of a module of eager mode."""
    if fullname == PREFIX or fullname.startswith(PREFIX + "."):
        return ModuleSpec(fullname, Filled(_fill), is_package=True)
    return None
