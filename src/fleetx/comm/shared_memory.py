"""A process group for CPU workers of one machine, whose collectives go through shared memory.

`fleetrun --backend shm` uses it; after `register`, `torch.distributed.init_process_group("shm")`
does too. All-reduce, reduce-scatter, all-gather, broadcast and barrier of dense CPU tensors go
through a segment that all workers map; everything else goes through a Gloo group beside it. A
collective runs in the thread that calls it and is complete when the call returns, also with
`async_op=True`. If the workers cannot share memory, for example on several machines, Gloo does
everything, and worker 0 logs why.
"""

from __future__ import annotations

import logging
import os
import secrets
from datetime import timedelta
from functools import cache
from typing import Any

import torch
import torch.distributed as dist

from fleetx import torch_private
from fleetx.kernels import shared_segment
from fleetx.kernels.shared_segment import TYPES, Reduction, Segment

_log = logging.getLogger("fleetx")

NAME = "shm"

_REDUCTIONS = {
    dist.ReduceOp.SUM: Reduction.SUM,
    dist.ReduceOp.PRODUCT: Reduction.PRODUCT,
    dist.ReduceOp.MIN: Reduction.MIN,
    dist.ReduceOp.MAX: Reduction.MAX,
}


class NotSharedError(RuntimeError):
    """The workers cannot share memory; the message says why."""


def open_segment(store: dist.Store, rank: int, size: int, seconds: float) -> Segment:
    """Map a segment with all workers of a group; raise NotSharedError on all of them or on none."""
    places = _exchange(store, "place", rank, size, _place())
    if len(set(places)) > 1:
        raise NotSharedError("the workers are not on one machine, or belong to different users")
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


class SharedMemoryGroup(dist.ProcessGroup):
    """A process group whose frequent collectives go through shared memory.

    Method names and arguments are those that torch.distributed calls.
    """

    def __init__(self, segment: Segment, gloo: Any) -> None:
        super().__init__(segment.rank, segment.size)  # type: ignore[call-arg]
        self._segment = segment
        # A method of the base class would call the one of this class again.
        self._gloo = gloo
        # What this class does not define is done by Gloo.
        torch_private.use_backend(self, torch.device("cpu"), gloo)

    def getBackendName(self) -> str:  # noqa: N802
        """Return the name by which the backend is registered."""
        return NAME

    @torch_private.not_compiled
    def allreduce(self, tensors: Any, opts: Any = None) -> dist.Work:  # type: ignore[override]
        """Reduce a tensor in place."""
        tensor = tensors[0] if isinstance(tensors, (list, tuple)) else tensors
        reduction = _reduction(opts, tensor.dtype)
        if reduction is None or not _is_plain(tensor):
            return self._gloo.allreduce([tensor], *_given(opts))
        self._segment.all_reduce(tensor, reduction)
        return _done([tensor])

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
        self._segment.broadcast(tensor, 0 if opts is None else opts.rootRank)
        return _done([tensor])

    @torch_private.not_compiled
    def all_gather_single(self, output: Any, tensor: Any, opts: Any = None) -> dist.Work:
        """Collect the tensors of all workers in one."""
        if not _is_plain(output, tensor):
            return torch_private.all_gather_single(self._gloo, output, tensor, opts)
        self._segment.all_gather(output, tensor)
        return _done(output)

    # Its name before PyTorch 2.13.
    _allgather_base = all_gather_single  # type: ignore[assignment]

    @torch_private.not_compiled
    def allgather(self, outputs: Any, tensors: Any, opts: Any = None) -> dist.Work:  # type: ignore[override]
        """Collect the tensors of all workers in a list."""
        parts, tensor = outputs[0], tensors[0]
        same = all(part.shape == tensor.shape and part.dtype == tensor.dtype for part in parts)
        if not same or not _is_dense(tensor, *parts):
            return self._gloo.allgather(outputs, tensors, *_given(opts))
        whole = tensor.new_empty((self._segment.size, *tensor.shape))
        self._segment.all_gather(whole, tensor.contiguous())
        for part, row in zip(parts, whole, strict=True):
            part.copy_(row)
        return _done(outputs)

    @torch_private.not_compiled
    def reduce_scatter_single(self, output: Any, tensor: Any, opts: Any = None) -> dist.Work:
        """Reduce tensors; each worker gets the part of its rank."""
        reduction = _reduction(opts, tensor.dtype)
        if reduction is None or output.dtype != tensor.dtype or not _is_plain(output, tensor):
            return torch_private.reduce_scatter_single(self._gloo, output, tensor, opts)
        self._segment.reduce_scatter(output, tensor, reduction)
        return _done(output)

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
        self._segment.reduce_scatter(target, torch.stack(list(parts)), reduction)
        output.copy_(target)
        return _done(outputs)

    @torch_private.not_compiled
    def barrier(self, opts: Any = None) -> dist.Work:  # type: ignore[override]
        """Wait until all workers have called it."""
        self._segment.barrier()
        return _done([])

    def shutdown(self) -> None:
        """Leave the group."""
        self._segment.leave()
        super().shutdown()

    def abort(self) -> None:
        """Leave the group at once."""
        self._segment.leave()
        super().abort()


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
            if rank == 0:
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
