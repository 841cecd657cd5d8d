"""Progress of training loops: `for batch in monitor.watch(loader): …`.

`watch` measures how long the loop waits for data and passes the expected length to worker 0's
progress line; `epochs` counts passes over the data, `note` adds values. Steps are counted by the
optimizer of fleet or by a program; in a loop without either, each batch is a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import Any, TypeVar

from fleetx.monitor import run as runs
from fleetx.monitor.batch_samples import samples_in
from fleetx.monitor.recorder import now
from fleetx.monitor.run import Run
from fleetx.monitor.targets import targets
from fleetx.runtime.worker_environment import detect

Batch = TypeVar("Batch")

_depth = 0  # nesting depth of `watch` and `epochs`


@contextmanager
def _watched() -> Iterator[Run]:
    """Ensure a measured run with a progress line; the outermost loop closes the line."""
    global _depth
    run = runs.current()
    if run is None:
        worker = detect()
        run = runs.start(runs.asked_settings(rank=worker.rank, workers=worker.world_size))
    run.show_progress()
    _depth += 1
    try:
        yield run
    finally:
        _depth -= 1
        if not _depth and run.progress is not None:
            run.progress.close()


def epochs(count: int) -> Iterator[int]:
    """Yield the epoch numbers, starting at 1, and show the current one."""
    if count < 0:
        raise ValueError(f"epochs must be 0 or more, not {count}.")
    with _watched() as run:
        if run.progress is not None:
            run.progress.epochs = count
        for number in range(1, count + 1):
            run.recorder.epoch = number
            yield number


def watch(
    loader: Iterable[Batch], *, epochs: int | None = None, total: int | None = None
) -> Iterator[Batch]:
    """Yield the batches of a loader and show the progress of the loop.

    Args:
        loader: a DataLoader, or any iterable.
        epochs: the number of passes; `set_epoch` of the sampler, or of the loader, is called with
            0, 1, … A loader that is itself an iterator has only one pass.
        total: the number of batches per pass, if `len(loader)` is not available.
    """
    if total is None and isinstance(loader, Sized):
        total = len(loader)
    with _watched() as run:
        if epochs is None:
            yield from _one_pass(loader, run, total)
            return
        if run.progress is not None:
            run.progress.epochs = epochs
        for number in range(epochs):
            run.recorder.epoch = number + 1
            _set_epoch(loader, number)
            yield from _one_pass(loader, run, total)


def _set_epoch(loader: Any, number: int) -> None:
    for each in (loader, getattr(loader, "sampler", None)):
        set_epoch = getattr(each, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(number)
            return


def _one_pass(loader: Iterable[Batch], run: Run, total: int | None) -> Iterator[Batch]:
    recorder, progress = run.recorder, run.progress
    if progress is not None:
        progress.epoch_began(total)
    watched_before, recorder.has_watched_data = recorder.has_watched_data, True
    recorder.paused()
    counts_itself = not targets.are_known
    try:
        began = now()
        batches = iter(loader)
        for batch in batches:
            recorder.data_was_waited_for(began, now())
            if counts_itself:
                recorder.forward_began(samples_in(batch))
            yield batch
            if counts_itself:
                recorder.step_ended()
            began = now()
    finally:
        recorder.has_watched_data = watched_before
        recorder.paused()
    if progress is not None:
        progress.epoch_ended()


def note(*, loss: Any = None, **values: Any) -> None:
    """Record the loss of the current step, and other values for the progress line.

    Call it before the optimizer's step, or before the next batch. Names may contain spaces:
    `note(**{"test accuracy": 0.97})`.
    """
    run = runs.current()
    if run is None:
        return
    if loss is not None:
        run.recorder.note_loss(loss)
    if values and run.progress is not None:
        run.progress.note(values)
