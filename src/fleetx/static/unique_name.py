"""Unique names in Fluid's scheme: `fc_0`, `fc_1`, ...; `guard()` starts a fresh numbering.

Checkpoints and scripts depend on these names, so the numbering is part of the interface.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator


class UniqueNameGenerator:
    """Generates `prefix + key + '_' + number`, with a counter per key."""

    def __init__(self, prefix: str | None = None) -> None:
        self.ids: defaultdict[str, int] = defaultdict(int)
        self.prefix = prefix or ""

    def __call__(self, key: str) -> str:
        """Return the next name for `key`."""
        number = self.ids[key]
        self.ids[key] += 1
        return f"{self.prefix}{key}_{number}"


_generator = UniqueNameGenerator()


def generate(key: str) -> str:
    """Return the next unique name for `key`."""
    return _generator(key)


def switch(new_generator: UniqueNameGenerator | None = None) -> UniqueNameGenerator:
    """Install another generator (a fresh one by default) and return the old one."""
    global _generator
    old = _generator
    _generator = UniqueNameGenerator() if new_generator is None else new_generator
    return old


@contextlib.contextmanager
def guard(new_generator: str | bytes | UniqueNameGenerator | None = None) -> Iterator[None]:
    """Restart the numbering inside the block; a string becomes a prefix of every name."""
    if isinstance(new_generator, bytes):
        new_generator = new_generator.decode()
    if isinstance(new_generator, str):
        new_generator = UniqueNameGenerator(new_generator)
    old = switch(new_generator)
    try:
        yield
    finally:
        switch(old)
