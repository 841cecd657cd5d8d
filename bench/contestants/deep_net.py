"""Sizes and data of a deep residual network, and the allocator's setting for honest peaks."""

import ctypes

import numpy

BLOCKS, WIDTH, INNER, BATCH = 24, 128, 512, 2048
X = numpy.random.default_rng(0).standard_normal((BATCH, WIDTH)).astype("float32")


def give_back_at_once():
    """Let the C library return every larger block to the system as soon as it is freed.

    Otherwise it keeps what was freed, in pieces that do not fit the next request, and the peak says
    more about that than about what a step needs.
    """
    mmap_threshold = -3
    if ctypes.CDLL(None).mallopt(mmap_threshold, 1 << 16) != 1:
        raise OSError("mallopt did not take the threshold: peaks need glibc.")
