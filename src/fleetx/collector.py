"""The garbage collector, paused while packages are imported.

An import creates hundreds of thousands of objects and hardly any garbage. The collector examines
all of them several times over, which takes a tenth of the time of `import torch`.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Collect no garbage inside the `with` block."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
