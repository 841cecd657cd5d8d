"""Parallel computation of evaluation vectors: the local model and, if requested, the endpoint.

Processes read samples by range, run the model on them and send the same arrays to the endpoint
meanwhile; a few batches are in progress at a time, and results are returned in order.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from fleetx.checkpoint import FormatError
from fleetx.evaluation.adapters import Answer
from fleetx.evaluation.endpoint import Endpoint, EndpointSettings, collected
from fleetx.evaluation.evaluation_error import EvaluationError
from fleetx.evaluation.samples import Samples
from fleetx.serving.model import ServedModel, load_model
from fleetx.serving.request_error import RequestError

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Task:
    """A computation: a model on samples, and the endpoint to query, if any."""

    model: Path
    samples: Samples
    endpoint: EndpointSettings | None = None
    threads: int | None = None
    """The number of threads per process; the library's choice if None."""


@dataclass(frozen=True)
class Block:
    """The vectors of consecutive samples."""

    start: int
    ids: list[str]
    expected: Arrays
    answers: list[Answer] = field(default_factory=list)
    """One per request; empty without an endpoint."""


class Worker:
    """Computation of blocks in one process; use it as a context manager."""

    def __init__(self, task: Task, model: ServedModel | None = None) -> None:
        self._samples = task.samples
        self.model = model or load_model(task.model, threads=task.threads)
        self._endpoint = None if task.endpoint is None else Endpoint(task.endpoint)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *details: object) -> None:
        if self._endpoint is not None:
            self._endpoint.__exit__(*details)

    def compute(self, start: int, stop: int) -> Block:
        """Return the block of a range of samples."""
        ids = self._samples.ids(start, stop)
        inputs = self._samples.read(start, stop)
        waiting = []
        if self._endpoint is not None:
            sources = self._samples.sources(start, stop)
            waiting = self._endpoint.submit(inputs, ids, sources)
        try:
            expected = self.model.run(inputs)
        except RequestError as error:
            raise EvaluationError(f"samples {ids[0]!r} to {ids[-1]!r}: {error}") from error
        return Block(start, ids, expected, collected(waiting))


# The worker of a process of the pool, whose functions receive only their arguments.
_worker: Worker | None = None


def _start(task: Task) -> None:
    global _worker
    # Ctrl-C reaches all processes of a terminal; only the parent process reports it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _worker = Worker(task)


def _compute(start: int, stop: int) -> Block:
    assert _worker is not None
    try:
        return _worker.compute(start, stop)
    except FormatError as error:
        # These errors cannot be pickled.
        raise EvaluationError(str(error)) from error


def compute_blocks(
    task: Task, *, jobs: int, batch: int, model: ServedModel | None = None
) -> Iterator[Block]:
    """Yield the blocks of all samples in order, computed by `jobs` processes.

    `model`, already loaded, is used if this process alone is enough.
    """
    count = len(task.samples)
    ranges = ((at, min(at + batch, count)) for at in range(0, count, batch))
    if jobs == 1:
        with Worker(task, model) as worker:
            for start, stop in ranges:
                yield worker.compute(start, stop)
        return
    if task.threads is None:
        threads = max(1, len(os.sched_getaffinity(0)) // jobs)
        task = Task(task.model, task.samples, task.endpoint, threads)
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), _start, (task,))
    waiting: deque[Future[Block]] = deque()
    try:
        for start, stop in ranges:
            waiting.append(pool.submit(_compute, start, stop))
            if len(waiting) > 2 * jobs:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise EvaluationError(
            "a process that computed vectors ended unexpectedly, perhaps out of memory; try "
            "fewer --jobs or a smaller --batch."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)
