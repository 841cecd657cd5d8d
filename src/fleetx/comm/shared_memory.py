"""A process group for CPU workers of one machine, whose collectives go through shared memory.

`fleetrun` uses it by default; after `register`, `torch.distributed.init_process_group("shm")` does
too. All-reduce, reduce-scatter, all-gather, broadcast and barrier of dense CPU tensors go through a
segment that all workers map; everything else goes through a Gloo group beside it. A collective runs
in the thread that calls it, also with `async_op=True`; then it goes on in a thread of its own if
other workers are late. If the workers cannot share memory, Gloo does everything.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from functools import cache, partial
from typing import Any

import torch
import torch.distributed as dist

from fleetx import torch_private
from fleetx.kernels import shared_segment
from fleetx.kernels.shared_segment import TYPES, Reduction, Segment
from fleetx.runtime import environment

_log = logging.getLogger("fleetx")

NAME = "shm"

PATIENCE = 0.2
"""How many seconds an asynchronous call waits for other workers before it returns."""

_REDUCTIONS = {
    dist.ReduceOp.SUM: Reduction.SUM,
    dist.ReduceOp.PRODUCT: Reduction.PRODUCT,
    dist.ReduceOp.MIN: Reduction.MIN,
    dist.ReduceOp.MAX: Reduction.MAX,
}


class NotSharedError(RuntimeError):
    """The workers cannot share memory; the message says why."""


class ApartError(NotSharedError):
    """The workers are not where memory could be shared."""


def open_segment(store: dist.Store, rank: int, size: int, seconds: float) -> Segment:
    """Map a segment with all workers of a group; raise NotSharedError on all of them or on none."""
    places = _exchange(store, "place", rank, size, _place())
    if len(set(places)) > 1:
        raise ApartError("the workers are not on one machine, or belong to different users")
    if rank == 0:
        return _offer(store, size, seconds)
    return _accept(store, rank, size, seconds)


def _place() -> str:
    """Return what processes that can share memory have in common, or "!" and a reason."""
    reason = shared_segment.why_impossible()
    if reason is not None:
        return f"!{reason}"
    with open("/proc/sys/kernel/random/boot_id") as file:
        machine = file.read().strip()
    return f"{machine} {os.readlink('/proc/self/ns/pid')} {os.geteuid()}"


def _exchange(store: dist.Store, name: str, rank: int, size: int, answer: str) -> list[str]:
    """Return the answers of all workers; raise if one begins with "!"."""
    store.set(f"{name}/{rank}", answer)
    answers = [store.get(f"{name}/{each}").decode() for each in range(size)]
    for each, text in enumerate(answers):
        if text.startswith("!"):
            raise NotSharedError(f"worker {each}: {text[1:]}")
    return answers


def _offer(store: dist.Store, size: int, seconds: float) -> Segment:
    token = secrets.token_bytes(shared_segment.TOKEN_BYTES)
    try:
        file = shared_segment.create(size, token)
    except (OSError, ValueError) as error:
        store.set("segment", "!")
        return _join(store, 0, size, f"no memory can be shared: {error}")
    try:
        segment = Segment(file, 0, size, token, seconds)
        store.set("segment", f"{os.getpid()} {file} {token.hex()}")
        return _join(store, 0, size, segment)
    finally:
        os.close(file)


def _accept(store: dist.Store, rank: int, size: int, seconds: float) -> Segment:
    offer = store.get("segment").decode()
    if offer == "!":
        return _join(store, rank, size, "worker 0 has no memory to share")
    pid, number, token = offer.split()
    file = -1
    try:
        file = os.open(f"/proc/{int(pid)}/fd/{int(number)}", os.O_RDWR | os.O_CLOEXEC)
        segment = Segment(file, rank, size, bytes.fromhex(token), seconds)
    except (OSError, ValueError) as error:
        return _join(store, rank, size, f"the memory of worker 0 cannot be mapped: {error}")
    finally:
        if file >= 0:
            os.close(file)
    return _join(store, rank, size, segment)


def _join(store: dist.Store, rank: int, size: int, result: Segment | str) -> Segment:
    """Wait until all have mapped the segment; raise if one has not."""
    failed = isinstance(result, str)
    try:
        _exchange(store, "joined", rank, size, f"!{result}" if failed else "joined")
    except NotSharedError:
        if isinstance(result, Segment):
            result.leave()
        raise
    assert isinstance(result, Segment)
    result.watch()
    return result


def _done(result: Any) -> dist.Work:
    future: torch.futures.Future[Any] = torch.futures.Future()
    future.set_result(result)
    return torch_private.work_of_future(future)


def _is_dense(*tensors: torch.Tensor) -> bool:
    return all(t.device.type == "cpu" and t.layout == torch.strided for t in tensors)


def _is_plain(*tensors: torch.Tensor) -> bool:
    return _is_dense(*tensors) and all(t.is_contiguous() for t in tensors)


def _reduction(opts: Any, dtype: torch.dtype) -> Reduction | None:
    if dtype not in TYPES:
        return None
    return Reduction.SUM if opts is None else _REDUCTIONS.get(opts.reduceOp.op)


def _given(opts: Any) -> tuple[Any, ...]:
    """Return the argument for the options of a collective; torch's defaults if there are none."""
    return () if opts is None else (opts,)


def _is_asynchronous(opts: Any) -> bool:
    """Return whether a call may return before the collective has ended."""
    return opts is not None and getattr(opts, "asyncOp", True)


class _LateWork(dist.Work):
    """A collective that goes on in a thread, with the methods that torch.distributed calls."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self._result = result
        self._end: torch.futures.Future[Exception | None] = torch.futures.Future()
        # An exception that is set by itself would be seen by Python alone, and not by DDP.
        self._future = self._end.then(self._result_or_error)

    def finish(self, call: Callable[[], bool]) -> None:
        """Run the rest of the collective."""
        try:
            call()
        except Exception as error:
            self._end.set_result(error)
        else:
            self._end.set_result(None)

    def _result_or_error(self, end: torch.futures.Future[Exception | None]) -> Any:
        error = end.value()
        if error is not None:
            raise error
        return self._result

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for the end; raise the error of the collective."""
        self._future.wait()
        return True

    def is_completed(self) -> bool:
        """Return whether the collective has ended."""
        return self._future.done()

    def get_future(self) -> torch.futures.Future[Any]:
        """Return the future that has the result, or the error."""
        return self._future


class SharedMemoryGroup(dist.ProcessGroup):
    """A process group whose frequent collectives go through shared memory.

    Method names and arguments are those that torch.distributed calls.
    """

    def __init__(self, segment: Segment, gloo: Any) -> None:
        super().__init__(segment.rank, segment.size)  # type: ignore[call-arg]
        self._segment = segment
        # A method of the base class would call the one of this class again.
        self._gloo = gloo
        self._turn = threading.Lock()
        self._thread: ThreadPoolExecutor | None = None
        self._last: Future[None] | None = None
        if gloo is not None:
            # What this class does not define is done by Gloo.
            torch_private.use_backend(self, torch.device("cpu"), gloo)

    def getBackendName(self) -> str:  # noqa: N802
        """Return the name by which the backend is registered."""
        return NAME

    def _run(self, call: Callable[[float], bool], result: Any, opts: Any) -> dist.Work:
        """Run a collective, given its patience; it tells whether it has ended.

        Without the thread, workers that start asynchronous collectives of two groups in different
        orders, or send a message in between, would wait for each other forever.
        """
        may_return = _is_asynchronous(opts)
        with self._turn:
            is_free = self._last is None or self._last.done()
            if is_free and call(PATIENCE if may_return else 0):
                return _done(result)
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="fleetx-shm")
            work = _LateWork(result)
            self._last = self._thread.submit(work.finish, partial(call, 0))
        if not may_return:
            work.wait()
        return work

    @torch_private.not_compiled
    def allreduce(self, tensors: Any, opts: Any = None) -> dist.Work:  # type: ignore[override]
        """Reduce a tensor in place."""
        tensor = tensors[0] if isinstance(tensors, (list, tuple)) else tensors
        reduction = _reduction(opts, tensor.dtype)
        if reduction is None or not _is_plain(tensor):
            return self._gloo.allreduce([tensor], *_given(opts))
        return self._run(partial(self._segment.all_reduce, tensor, reduction), [tensor], opts)

    @torch_private.not_compiled
    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> dist.Work:
        """Reduce tensors in place."""
        for tensor in tensors:
            self.allreduce([tensor], opts).wait()
        return _done(list(tensors))

    @torch_private.not_compiled
    def broadcast(self, tensors: Any, opts: Any = None) -> dist.Work:  # type: ignore[override]
        """Send a tensor of one worker to all."""
        tensor = tensors[0] if isinstance(tensors, (list, tuple)) else tensors
        if not _is_plain(tensor):
            return self._gloo.broadcast([tensor], *_given(opts))
        root = 0 if opts is None else opts.rootRank
        return self._run(partial(self._segment.broadcast, tensor, root), [tensor], opts)

    @torch_private.not_compiled
    def all_gather_single(self, output: Any, tensor: Any, opts: Any = None) -> dist.Work:
        """Collect the tensors of all workers in one."""
        if not _is_plain(output, tensor):
            return torch_private.all_gather_single(self._gloo, output, tensor, opts)
        return self._run(partial(self._segment.all_gather, output, tensor), output, opts)

    # Its name before PyTorch 2.13.
    _allgather_base = all_gather_single  # type: ignore[assignment]

    @torch_private.not_compiled
    def allgather(self, outputs: Any, tensors: Any, opts: Any = None) -> dist.Work:  # type: ignore[override]
        """Collect the tensors of all workers in a list."""
        parts, tensor = outputs[0], tensors[0]
        same = all(part.shape == tensor.shape and part.dtype == tensor.dtype for part in parts)
        if not same or not _is_dense(tensor, *parts):
            return self._gloo.allgather(outputs, tensors, *_given(opts))
        whole, sent = tensor.new_empty((self._segment.size, *tensor.shape)), tensor.contiguous()

        def gather(patience: float) -> bool:
            ended = self._segment.all_gather(whole, sent, patience)
            if ended:
                _copy(list(whole), parts)
            return ended

        return self._run(gather, outputs, opts)

    @torch_private.not_compiled
    def reduce_scatter_single(self, output: Any, tensor: Any, opts: Any = None) -> dist.Work:
        """Reduce tensors; each worker gets the part of its rank."""
        reduction = _reduction(opts, tensor.dtype)
        if reduction is None or output.dtype != tensor.dtype or not _is_plain(output, tensor):
            return torch_private.reduce_scatter_single(self._gloo, output, tensor, opts)
        call = partial(self._segment.reduce_scatter, output, tensor, reduction)
        return self._run(call, output, opts)

    _reduce_scatter_base = reduce_scatter_single  # type: ignore[assignment]

    @torch_private.not_compiled
    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> dist.Work:  # type: ignore[override]
        """Reduce a list of tensors; each worker gets the one of its rank."""
        output, parts = outputs[0], inputs[0]
        same = all(part.shape == output.shape and part.dtype == output.dtype for part in parts)
        reduction = _reduction(opts, output.dtype)
        if reduction is None or not same or not _is_dense(output, *parts):
            return self._gloo.reduce_scatter(outputs, inputs, *_given(opts))
        target = torch.empty_like(output, memory_format=torch.contiguous_format)
        stacked = torch.stack([part.detach() for part in parts])

        def scatter(patience: float) -> bool:
            ended = self._segment.reduce_scatter(target, stacked, reduction, patience)
            if ended:
                _copy([target], [output])
            return ended

        return self._run(scatter, outputs, opts)

    @torch_private.not_compiled
    def barrier(self, opts: Any = None) -> dist.Work:  # type: ignore[override]
        """Wait until all workers have called it."""
        return self._run(self._segment.barrier, [], opts)

    def shutdown(self) -> None:
        """Leave the group."""
        self._leave()
        super().shutdown()

    def abort(self) -> None:
        """Leave the group at once."""
        self._leave()
        super().abort()

    def _leave(self) -> None:
        self._segment.leave()
        if self._thread is not None:
            self._thread.shutdown()


@torch.no_grad()
def _copy(sources: list[torch.Tensor], targets: list[torch.Tensor]) -> None:
    for source, target in zip(sources, targets, strict=True):
        target.copy_(source)


def create_group(store: dist.Store, rank: int, size: int, timeout: timedelta) -> Any:
    """Return a group as torch.distributed asks for it; Gloo's if memory cannot be shared."""
    gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size, timeout)
    if size > 1:
        try:
            segment = open_segment(
                dist.PrefixStore("segment", store), rank, size, timeout.total_seconds()
            )
            return SharedMemoryGroup(segment, gloo)
        except NotSharedError as error:
            # That several machines share no memory surprises only those who asked for it.
            if rank == 0 and not (isinstance(error, ApartError) and environment.may_share_memory()):
                _tell(f"Gloo is used instead of shared memory: {error}.")
    group = dist.ProcessGroup(rank, size)  # type: ignore[call-arg]
    torch_private.use_backend(group, torch.device("cpu"), gloo)
    return group


@cache
def _tell(text: str) -> None:
    """Log a warning, once for all groups of this process."""
    _log.warning(text)


def register() -> None:
    """Make the backend "shm" known to torch.distributed."""
    if NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, create_group, devices=["cpu"])
