"""Data generators: user code that converts raw input lines to the multi-slot format.

A subclass defines `generate_sample(line)`; a dataset's pipe command runs `run_from_stdin()`,
which reads raw lines and writes one line per sample: "<count> v1 v2 ..." for each slot. The
command is started once per file, so this module imports nothing that is slow to load.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from numbers import Integral, Real
from typing import Any

from fleetx.exports import export_defined

Sample = Any
SampleIterator = Callable[[], Iterable[Sample]]


@contextlib.contextmanager
def _until_nobody_reads() -> Iterator[None]:
    """Exit quietly if the reader of the output has closed it, as `cat` does."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)


class DataGenerator:
    """Base class that reads lines and writes samples; subclasses define samples and formatting."""

    def __init__(self) -> None:
        self._proto_info: list[tuple[str, str]] | None = None
        self.batch_size_ = 32

    def set_batch(self, batch_size: int) -> None:
        """Set the number of samples that `generate_batch` receives at once."""
        self.batch_size_ = batch_size

    def generate_sample(self, line: str | None) -> SampleIterator:
        """Return a function that yields the samples of a line: [(slot name, [values]), ...]."""
        raise NotImplementedError(
            f"{type(self).__name__} must define generate_sample(line) and return a function that "
            "yields samples such as [('words', [1, 2]), ('label', [0])]."
        )

    def generate_batch(self, samples: list[Sample]) -> SampleIterator:
        """Return a function that yields the samples of a batch; may be overridden."""

        def unchanged() -> Iterator[Sample]:
            yield from samples

        return unchanged

    def run_from_stdin(self) -> None:
        """Convert every line of standard input to lines on standard output."""
        with _until_nobody_reads():
            self._write(sample for line in sys.stdin for sample in self.generate_sample(line)())

    def run_from_memory(self) -> None:
        """Write the samples of `generate_sample(None)`, which needs no input."""
        with _until_nobody_reads():
            self._write(iter(self.generate_sample(None)()))

    def _write(self, samples: Iterator[Sample]) -> None:
        group: list[Sample] = []
        for sample in samples:
            if sample is None:
                continue
            group.append(sample)
            if len(group) == self.batch_size_:
                self._write_group(group)
                group = []
        self._write_group(group)

    def _write_group(self, group: list[Sample]) -> None:
        if group:
            for sample in self.generate_batch(group)():
                sys.stdout.write(self._gen_str(sample))

    def _gen_str(self, line: Sample) -> str:
        raise NotImplementedError(
            "Use MultiSlotDataGenerator or MultiSlotStringDataGenerator as the base class."
        )


class MultiSlotStringDataGenerator(DataGenerator):
    """Generator that writes values that are already text, unchecked: the faster one."""

    def _gen_str(self, line: Sample) -> str:
        slots = _slots(line, "[('words', ['1926', '08']), ('label', ['1'])]")
        return " ".join(f"{len(values)} {' '.join(values)}" for _, values in slots) + "\n"


class MultiSlotDataGenerator(DataGenerator):
    """Generator that writes numbers, and checks that all samples have the same nonempty slots."""

    def _gen_str(self, line: Sample) -> str:
        slots = _slots(line, "[('words', [1926, 8]), ('label', [1])]")
        for name, values in slots:
            _check_slot(name, values)
        if self._proto_info is None:
            self._proto_info = [(name, "uint64") for name, _ in slots]
        self._check_names([name for name, _ in slots])
        for index, (name, values) in enumerate(slots):
            if not all(isinstance(value, Integral) for value in values):
                self._proto_info[index] = (name, "float")
        return (
            " ".join(f"{len(values)} {' '.join(map(_text, values))}" for _, values in slots) + "\n"
        )

    def _check_names(self, names: list[str]) -> None:
        known = [name for name, _ in self._proto_info or ()]
        if len(names) != len(known):
            raise ValueError(
                f"A sample has {len(names)} slots ({', '.join(names)}), but the first one had "
                f"{len(known)} ({', '.join(known)})."
            )
        for name, expected in zip(names, known, strict=True):
            if name != expected:
                raise ValueError(f"A sample has slot {name!r} where the first had {expected!r}.")


def _slots(sample: Sample, example: str) -> list[tuple[str, Any]]:
    if isinstance(sample, zip):
        sample = list(sample)
    if not isinstance(sample, (list, tuple)):
        raise ValueError(
            f"generate_sample() must yield lists or tuples such as {example}, not "
            f"{type(sample).__name__}."
        )
    return list(sample)


def _check_slot(name: Any, values: Any) -> None:
    if not isinstance(name, str):
        raise ValueError(f"The name of a slot must be a str, not {type(name).__name__}: {name!r}.")
    if not isinstance(values, list):
        raise ValueError(
            f"The values of slot {name!r} must be a list, not {type(values).__name__}."
        )
    if not values:
        raise ValueError(f"Slot {name!r} is empty; pad it with at least one value.")
    for value in values:
        if not isinstance(value, Real):
            raise ValueError(
                f"Slot {name!r} holds a {type(value).__name__}, but values must be int or float."
            )


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


export_defined(globals())
