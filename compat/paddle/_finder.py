"""The finder of this package's modules, which queries a list of sources.

A source returns the spec of a module, or None if it does not have it. `_whole` and `_light` add the
sources.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

PACKAGE = "paddle"
SOURCES: list[Callable[[str, Sequence[str] | None], ModuleSpec | None]] = []


def names_in(text: str) -> list[str]:
    """Return the full names in a text: `nn.{conv loss} io` has paddle.nn.conv, .nn.loss and .io."""
    found = re.findall(r"([^\s{]*)\{([^}]*)\}(\S*)|(\S+)", text)
    return [
        f"{PACKAGE}.{before}{name}{after}"
        for before, names, after, single in found
        for name in (names or single).split()
    ]


class Filled(Loader):
    """Loads a module by calling a function that fills it."""

    def __init__(self, fill: Callable[[ModuleType], None]) -> None:
        self._fill = fill

    def exec_module(self, module: ModuleType) -> None:
        self._fill(module)


class _Finder(MetaPathFinder):
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if not fullname.startswith(PACKAGE + "."):
            return None
        specs = (source(fullname, path) for source in SOURCES)
        return next((spec for spec in specs if spec is not None), None)


sys.meta_path.insert(0, _Finder())
