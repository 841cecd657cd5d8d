"""The garbage collector, kept away from what imports create.

An import creates hundreds of thousands of objects and hardly any garbage. The collector examines
all of them several times over, which takes a tenth of the time of `import torch`; and again in
every full collection, such as the first program's, for a tenth of a second.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_left_out = False


@contextmanager
def paused() -> Iterator[None]:
    """Collect no garbage inside the `with` block.

    At the end of the first one, all that exists by then is left out of later collections (see
    `gc.freeze`; `gc.unfreeze` takes it back). A script imports FleetX before it creates objects
    of its own, so that these are modules, which stay until the process ends.
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
    """Collect garbage now, and leave what remains out of later collections.

    For a process that has loaded all it needs: a full collection would stop all its threads for a
    tenth of a second. Objects in reference cycles then stay until the process ends.
    """
    gc.collect()
    gc.freeze()
