"""Sizes and data of a deep residual network, and the allocator setting for measuring peaks."""

import ctypes

import numpy

BLOCKS, WIDTH, INNER, BATCH = 24, 128, 512, 2048
X = numpy.random.default_rng(0).standard_normal((BATCH, WIDTH)).astype("float32")


def give_back_at_once():
    """Make the C library return larger blocks to the system as soon as they are freed.

    Otherwise it keeps fragments that are too small for the next request, and the peak reflects
    fragmentation rather than the memory that a step needs.
    """
    mmap_threshold = -3
    if ctypes.CDLL(None).mallopt(mmap_threshold, 1 << 16) != 1:
        raise OSError("mallopt rejected the threshold: measuring peaks needs glibc.")
