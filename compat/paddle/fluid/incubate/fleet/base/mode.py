"""Kinds of training jobs."""

import enum


class Mode(enum.IntEnum):
    """How workers train together."""

    TRANSPILER = 1
    PSLIB = 2
    COLLECTIVE = 3
