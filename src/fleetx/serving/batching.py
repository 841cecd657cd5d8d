"""Dynamic batching: compatible requests that wait at the same time are computed together.

One thread computes while the event loop continues to read requests. When the thread is free, a
group of waiting requests is run as soon as it is full, or all clients that were recently active
have sent a request (so a single client never waits), or its first request has waited for
`max_delay`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fleetx.ps.client.row_reader import ServersUnavailableError
from fleetx.serving.deadline import Deadline, DeadlineExceeded
from fleetx.serving.model import ServedModel
from fleetx.serving.request_error import RequestError
from fleetx.serving.serve_settings import ServeSettings
from fleetx.serving.server_metrics import Metrics
from fleetx.serving.tensor_spec import Arrays

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 1  # if rows on live servers are unavailable


@dataclass(slots=True)
class _Waiting:
    """A request waiting for its outputs."""

    arrays: Arrays
    rows: int
    arrived: float
    answer: asyncio.Future[Arrays]


@dataclass(slots=True)
class _Group:
    """Waiting requests that can be computed together."""

    requests: deque[_Waiting] = field(default_factory=deque)
    rows: int = 0

    def take(self, max_rows: int) -> list[_Waiting]:
        """Remove and return the first requests, up to `max_rows` rows but at least one request."""
        taken: list[_Waiting] = []
        rows = 0
        while self.requests and (not taken or rows + self.requests[0].rows <= max_rows):
            taken.append(self.requests.popleft())
            rows += taken[-1].rows
        self.rows -= rows
        return taken


class Batcher:
    """Computation of requests in batches, within the limits of the settings."""

    def __init__(self, model: ServedModel, settings: ServeSettings, metrics: Metrics) -> None:
        self.joins = True
        self._model, self._metrics = model, metrics
        self._max_batch, self._max_delay = settings.max_batch, settings.max_delay
        self._groups: dict[Hashable, _Group] = {}
        self._waiting = 0  # requests in all groups
        self._running = 0  # requests that the thread computes now
        self._crowd = 0  # maximum of concurrent requests during the last batch
        self._alone = 0  # number of groups of requests that cannot be batched
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Future[Any]] = set()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._run_seconds = settings.run_seconds
        self._deadline = Deadline()

    @property
    def waiting(self) -> int:
        """The number of requests waiting for the model."""
        return self._waiting

    async def submit(self, arrays: Arrays) -> Arrays:
        """Return the outputs for the arrays of one request, which have been validated."""
        rows = self._rows(arrays)
        loop = asyncio.get_running_loop()
        request = _Waiting(arrays, rows, loop.time(), loop.create_future())
        group = self._groups.setdefault(self._key(arrays), _Group())
        group.requests.append(request)
        group.rows += rows
        self._waiting += 1
        self._crowd = max(self._crowd, self._waiting + self._running)
        self._look()
        return await request.answer

    async def call(self, function: Any, *args: Any) -> Any:
        """Call a function in the model's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)

    def close(self) -> None:
        """Stop the thread after it has finished its work."""
        self._thread.shutdown()

    def _rows(self, arrays: Arrays) -> int:
        """Return the number of rows of a request, in the model's dynamic first dimension."""
        sizes = [1]
        for spec in self._model.inputs:
            if spec.shape[:1] != (-1,):
                continue
            size = arrays[spec.name].shape[0]
            if size == 0:
                raise RequestError(400, f"input {spec.name!r} has no rows.")
            if size > self._max_batch:
                raise RequestError(
                    413,
                    f"input {spec.name!r} has {size} rows, more than the {self._max_batch} that "
                    "are computed at a time; split the request.",
                )
            sizes.append(size)
        return max(sizes)

    def _key(self, arrays: Arrays) -> Hashable:
        """Return the key that requests must share to be batched."""
        shapes = [arrays[spec.name].shape for spec in self._model.inputs]
        if self.joins and all(shape[0] == shapes[0][0] for shape in shapes):
            return tuple(shape[1:] for shape in shapes)  # the types are the model's
        self._alone += 1
        return self._alone

    def _look(self) -> None:
        """Run a group in the thread if it is free and the group need not wait."""
        if self._running or not self._waiting:
            return
        now = asyncio.get_running_loop().time()
        # Groups are in the order of their first requests, so none starves.
        key, group = next(iter(self._groups.items()))
        due = group.requests[0].arrived + self._max_delay
        if due <= now or self._waiting >= self._crowd or group.rows >= self._max_batch:
            self._start(key, group)
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(due, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._look()

    def _start(self, key: Hashable, group: _Group) -> None:
        batch = group.take(self._max_batch)
        del self._groups[key]
        if group.requests:  # the rest goes to the end of the queue
            self._groups[key] = group
        self._waiting -= len(batch)
        self._running = len(batch)
        self._crowd = self._waiting + self._running
        task = asyncio.ensure_future(self._compute(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _compute(self, batch: list[_Waiting]) -> None:
        # The thread is free, so this is its next call.
        late = asyncio.get_running_loop().call_later(
            self._run_seconds, self._deadline.interrupt, self._deadline.number + 1
        )
        try:
            results, seconds = await self.call(self._run_in_time, [each.arrays for each in batch])
        finally:
            late.cancel()
            self._running = 0
        self._metrics.batch_rows.add(sum(each.rows for each in batch))
        self._metrics.batch_requests.add(len(batch))
        self._metrics.model_seconds.add(seconds)
        self._look()
        for request, result in zip(batch, results, strict=True):
            if request.answer.cancelled():
                continue  # its client has disconnected
            if isinstance(result, Exception):
                request.answer.set_exception(result)
            else:
                request.answer.set_result(result)

    def _run_in_time(self, batch: list[Arrays]) -> tuple[list[Arrays | Exception], float]:
        try:
            found: tuple[list[Arrays | Exception], float] = self._deadline.run(self._run, batch)
        except DeadlineExceeded:
            problem = f"the model took longer than {self._run_seconds:g} seconds."
            _log.warning("a batch of %d requests was ended: %s", len(batch), problem)
            return [RequestError(504, problem) for _ in batch], self._run_seconds
        return found

    def _run(self, batch: list[Arrays]) -> tuple[list[Arrays | Exception], float]:
        """Compute a batch, in the model's thread."""
        begin = time.perf_counter()
        results: list[Arrays | Exception]
        if len(batch) == 1:
            results = [self._run_alone(batch[0])]
        else:
            try:
                results = list(self._run_joined(batch))
            except ServersUnavailableError as error:
                results = [_unavailable(error)] * len(batch)
            except Exception as error:
                # One of them is the cause; the others can still be served.
                _log.warning("a batch of %d requests failed, computing each: %s", len(batch), error)
                results = [self._run_alone(arrays) for arrays in batch]
        return results, time.perf_counter() - begin

    def _run_alone(self, arrays: Arrays) -> Arrays | Exception:
        try:
            return self._model.run_checked(arrays)
        except ServersUnavailableError as error:
            return _unavailable(error)
        except Exception as error:
            _log.warning("a request failed: %s", error)
            words = (str(error).strip() or type(error).__name__).splitlines()[0]
            return RequestError(500, f"the model failed on this request: {words}")

    def _run_joined(self, batch: list[Arrays]) -> list[Arrays]:
        joined = {name: np.concatenate([each[name] for each in batch]) for name in batch[0]}
        outputs = self._model.run_checked(joined)
        first = self._model.inputs[0].name
        ends = np.cumsum([len(each[first]) for each in batch]).tolist()
        for name, value in outputs.items():
            if value.shape[:1] != (ends[-1],):
                raise ValueError(
                    f"output {name!r} has the shape {list(value.shape)} for {ends[-1]} rows"
                )
        begins = [0, *ends[:-1]]
        return [
            {name: value[begin:end] for name, value in outputs.items()}
            for begin, end in zip(begins, ends, strict=True)
        ]


def _unavailable(error: ServersUnavailableError) -> RequestError:
    """Return the error for requests whose rows are unavailable."""
    _log.warning("requests get a 503: %s", error)
    return RequestError(503, str(error), retry_after=_RETRY_SECONDS)
