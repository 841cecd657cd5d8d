"""What the launcher tells a process through environment variables.

This is where they are read; the rest of the code asks here.
"""

from __future__ import annotations

import os


def worker_index() -> int:
    """Return the number of this worker, from 0 (PADDLE_TRAINER_ID; 0 without a launcher)."""
    return _count("PADDLE_TRAINER_ID", default=0, least=0)


def worker_num() -> int:
    """Return how many workers train together (PADDLE_TRAINERS_NUM; 1 without a launcher)."""
    return _count("PADDLE_TRAINERS_NUM", default=1, least=1)


def cpu_num() -> int:
    """Return how many batches a data-parallel program on the CPU takes per step (CPU_NUM; 1)."""
    return _count("CPU_NUM", default=1, least=1)


def _count(variable: str, default: int, least: int) -> int:
    text = os.environ.get(variable, "").strip()  # noqa: TID251 - the one place for it
    if not text:
        return default
    if not text.isdecimal() or int(text) < least:
        raise ValueError(
            f"The environment variable {variable} must be a whole number from {least} on, "
            f"but it is {text!r}."
        )
    return int(text)
