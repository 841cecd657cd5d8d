"""Exclude objects created by imports from garbage collection.

An import creates hundreds of thousands of objects and hardly any garbage. The collector scans all
of them several times, which takes a tenth of the time of `import torch`; and again in every full
collection, such as that of the first program, which takes a tenth of a second.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_left_out = False


@contextmanager
def paused() -> Iterator[None]:
    """Disable garbage collection inside the `with` block.

    At the end of the first one, all existing objects are excluded from later collections (see
    `gc.freeze`; `gc.unfreeze` reverts it). A script imports FleetX before it creates its own
    objects, so these belong to modules, which stay until the process ends.
    """
    global _left_out
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not _left_out:
                _left_out = True
                gc.freeze()
            gc.enable()


def leave_out_all() -> None:
    """Collect garbage now, and exclude the remaining objects from later collections.

    For a process that has loaded everything: a full collection would stop all its threads for a
    tenth of a second. Excluded objects in reference cycles are never freed.
    """
    gc.collect()
    gc.freeze()
