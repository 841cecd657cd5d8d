"""How the C library's allocator treats large blocks of memory.

glibc raises its threshold for blocks that it returns to the system to the size of what was freed,
up to 32 MB: buffers that are allocated and freed in every step then stay in heaps, one per thread,
and fragment them. A process that gathers and drops parameters takes several times the memory that
it uses.
"""

from __future__ import annotations

import ctypes
from functools import cache

from fleetx.runtime import environment

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
_BYTES = 8 << 20
"""Smaller blocks stay: page faults in every step would cost more than they save."""


@cache
def return_large_blocks() -> bool:
    """Return freed blocks of 8 MB or more to the system at once; return whether the C library
    can. A threshold in MALLOC_MMAP_THRESHOLD_ stays.
    """
    if environment.malloc_threshold():
        return True
    change = getattr(ctypes.CDLL(None), "mallopt", None)  # musl, macOS and Windows have none
    if change is None:
        return False
    # The heap shrinks only by more than that, as where glibc sets the thresholds itself.
    return bool(change(_MMAP_THRESHOLD, _BYTES)) and bool(change(_TRIM_THRESHOLD, 2 * _BYTES))
