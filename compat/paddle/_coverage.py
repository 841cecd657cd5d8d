"""What happens on a name that is not covered: one sentence that says so and where the list is.

A finder gives every module of this package a `__getattr__` that refuses unknown names, and an
`__all__` if it has none; it refuses unknown modules itself. Names that are left out on purpose have
a sentence of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any, NoReturn

LIST = "docs/paddle-compatibility.md"
PACKAGE = "paddle"
# What modules of this package import in order to describe themselves.
_TOOLS = frozenset({"exported", "missing", "narrow"})

_EAGER = "eager mode (dygraph) is out of scope; eager models are written in PyTorch"
_BY_FLEET = "programs of server jobs are divided by fleet.distributed_optimizer"
_CLOSED = "its servers were a closed binary; parameter_server.distribute_transpiler is covered"

# Longest prefix wins. What `paddle.fluid.dygraph.Linear` is refused with, and why.
REASONS = {
    "paddle.fluid.dygraph": _EAGER,
    "paddle.fluid.imperative": _EAGER,
    "paddle.fluid.enable_dygraph": _EAGER,
    "paddle.fluid.enable_imperative": _EAGER,
    "paddle.fluid.save_dygraph": _EAGER,
    "paddle.fluid.load_dygraph": _EAGER,
    "paddle.fluid.core.VarBase": _EAGER,
    "paddle.imperative": _EAGER,
    "paddle.jit": _EAGER,
    "paddle.autograd": _EAGER,
    "paddle.grad": _EAGER,
    "paddle.no_grad": _EAGER,
    "paddle.Model": _EAGER,
    "paddle.DataParallel": _EAGER,
    "paddle.hapi": _EAGER,
    "paddle.callbacks": _EAGER,
    "paddle.amp": _EAGER + " (programs use paddle.static.amp)",
    "paddle.fluid.incubate.fleet.parameter_server.pslib": _CLOSED,
    "paddle.fluid.communicator": _BY_FLEET,
}


def reason_for(name: str) -> str | None:
    """Return why a name, or the module it would be in, is not there; None where nothing is said."""
    parts = name.split(".")
    for end in range(len(parts), 1, -1):
        found = REASONS.get(".".join(parts[:end]))
        if found is not None:
            return found
    return None


def sentence(name: str, kind: str = "name") -> str:
    """Return the sentence for a full name such as `paddle.fluid.layers.foo`."""
    reason = reason_for(name)
    why = f": {reason}" if reason else ""
    return f"{name} is not covered by FleetX{why}. {LIST} lists every {kind} that is."


def missing(module: str) -> Callable[[str], NoReturn]:
    """Return the `__getattr__` of a module: it refuses every name that the module does not have."""

    def __getattr__(name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        obj = sys.modules.get(module)  # noqa: TID251 - the module that lacks the name
        raise AttributeError(sentence(f"{module}.{name}"), name=name, obj=obj)

    return __getattr__


def exported(names: dict[str, Any], *, modules: bool = False, without: str = "") -> list[str]:
    """Return `__all__` of a module that passes names on: the public ones among its globals.

    `without` lists those that the module imports for its own use, separated by blanks.
    """
    left_out = _TOOLS.union(without.split())
    return sorted(
        name
        for name, value in names.items()
        if not name.startswith("_")
        and name not in left_out
        and (modules or not isinstance(value, ModuleType))
    )


class _Loader(SourceFileLoader):
    """Loads a module and completes it: `__getattr__`, and `__all__` if it passes names on."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        names = vars(module)
        names.setdefault("__getattr__", missing(module.__name__))
        passed_on = exported(names)
        if passed_on:
            names.setdefault("__all__", passed_on)


class _Finder(MetaPathFinder):
    """Finds the modules of this package; one that does not exist is not covered."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if not fullname.startswith(PACKAGE + "."):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None:
            # Without a `name`, so that `from package import missing` shows this sentence as well.
            raise ModuleNotFoundError(sentence(fullname, "module"))
        if isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path)
        return spec


def install_finder() -> None:
    """Install the finder of this package's modules, once."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
