"""A process group for CPU workers of one machine, whose collectives go through shared memory.

`fleetrun` uses it by default; after `register`, `torch.distributed.init_process_group("shm")` does
too. All-reduce, reduce-scatter, all-gather, broadcast and barrier of dense CPU tensors go through a
segment that all workers map; everything else goes through a Gloo group beside it. The choice
depends on nothing that may differ between workers, such as strides. A collective runs in the thread
that calls it (`late_collectives.py`). If the workers cannot share memory, Gloo does everything.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import cache, partial
from typing import Any

import torch
import torch.distributed as dist

from fleetx import torch_private
from fleetx.comm.late_collectives import Call, Turns
from fleetx.comm.segment_meeting import ApartError, NotSharedError, open_segment
from fleetx.kernels.shared_segment import TYPES, Reduction, Segment
from fleetx.runtime import environment

_log = logging.getLogger("fleetx")

NAME = "shm"

_Copies = Sequence[tuple[torch.Tensor, torch.Tensor]]  # sources and targets

_REDUCTIONS = {
    dist.ReduceOp.SUM: Reduction.SUM,
    dist.ReduceOp.PRODUCT: Reduction.PRODUCT,
    dist.ReduceOp.MIN: Reduction.MIN,
    dist.ReduceOp.MAX: Reduction.MAX,
}


def _is_dense(*tensors: torch.Tensor) -> bool:
    return all(t.device.type == "cpu" and t.layout == torch.strided for t in tensors)


def _reduction(opts: Any, dtype: torch.dtype) -> Reduction | None:
    if dtype not in TYPES:
        return None
    return Reduction.SUM if opts is None else _REDUCTIONS.get(opts.reduceOp.op)


def _reductions(opts: Any, tensors: Sequence[torch.Tensor]) -> list[Reduction]:
    """Return the reductions of tensors; none if shared memory does not support one of them."""
    found = [_reduction(opts, tensor.dtype) for tensor in tensors]
    return [each for each in found if each is not None] if None not in found else []


def _given(opts: Any) -> tuple[Any, ...]:
    """Return the argument for the options of a collective; torch's defaults if there are none."""
    return () if opts is None else (opts,)


def _is_asynchronous(opts: Any) -> bool:
    """Return whether a call may return before the collective has ended."""
    return opts is not None and getattr(opts, "asyncOp", True)


def _packed(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous tensor: the same one, or a copy."""
    return tensor.detach().contiguous()


def _back(message: torch.Tensor, tensor: torch.Tensor) -> _Copies:
    """Return the pairs to copy after the message for a tensor has arrived."""
    return () if tensor.is_contiguous() else [(message, tensor)]


def _with_copies(call: Call, copies: _Copies) -> Call:
    if not copies:
        return call

    @torch.no_grad()
    def call_and_copy(patience: float) -> bool:
        ended = call(patience)
        if ended:
            for source, target in copies:
                target.copy_(source)
        return ended

    return call_and_copy


def _in_sequence(calls: Iterable[Call]) -> Call:
    left = deque(calls)

    def call_all(patience: float) -> bool:
        while left and left[0](patience):
            left.popleft()
        return not left

    return call_all


class SharedMemoryGroup(dist.ProcessGroup):
    """A process group whose frequent collectives go through shared memory.

    Method names and arguments are those that torch.distributed calls. All methods are here that
    PyTorch looks for in Python: it calls its own in place of a missing one without releasing the
    GIL, and Gloo's threads may hold the lock that Gloo then takes while they wait for the GIL.
    """

    def __init__(self, segment: Segment, gloo: Any) -> None:
        super().__init__(segment.rank, segment.size)  # type: ignore[call-arg]
        self._segment = segment
        self._turns = Turns()
        # A method of the base class would call the one of this class again.
        self._gloo: Any = _group_of(gloo, segment.rank, segment.size)
        # Gloo does everything that this class does not define.
        torch_private.use_backend(self, torch.device("cpu"), gloo)

    def getBackendName(self) -> str:
        """Return the name by which the backend is registered."""
        return NAME

    def _run(self, call: Call, result: Any, opts: Any) -> dist.Work:
        return self._turns.run(call, result, _is_asynchronous(opts))

    @torch_private.not_compiled
    def allreduce(self, tensors: Any, opts: Any = None) -> dist.Work:  # type: ignore[override]
        """Reduce a tensor in place."""
        tensor = tensors[0] if isinstance(tensors, (list, tuple)) else tensors
        reduction = _reduction(opts, tensor.dtype)
        if reduction is None or not _is_dense(tensor):
            return self._gloo.allreduce([tensor], *_given(opts))
        return self._run(self._all_reduce(tensor, reduction), [tensor], opts)

    def _all_reduce(self, tensor: torch.Tensor, reduction: Reduction) -> Call:
        message = _packed(tensor)
        call = partial(self._segment.all_reduce, message, reduction)
        return _with_copies(call, _back(message, tensor))

    @torch_private.not_compiled
    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> dist.Work:
        """Reduce tensors in place."""
        reductions = _reductions(opts, tensors)
        if not reductions or not _is_dense(*tensors):
            return self._gloo.allreduce_coalesced(list(tensors), *_given(opts))
        calls = map(self._all_reduce, tensors, reductions)
        return self._run(_in_sequence(calls), list(tensors), opts)

    @torch_private.not_compiled
    def broadcast(self, tensors: Any, opts: Any = None) -> dist.Work:  # type: ignore[override]
        """Send a tensor of one worker to all."""
        tensor = tensors[0] if isinstance(tensors, (list, tuple)) else tensors
        if not _is_dense(tensor):
            return self._gloo.broadcast([tensor], *_given(opts))
        message, root = _packed(tensor), 0 if opts is None else opts.rootRank
        call = partial(self._segment.broadcast, message, root)
        return self._run(_with_copies(call, _back(message, tensor)), [tensor], opts)

    @torch_private.not_compiled
    def all_gather_single(self, output: Any, tensor: Any, opts: Any = None) -> dist.Work:
        """Collect the tensors of all workers in one."""
        if not _is_dense(output, tensor):
            return torch_private.all_gather_single(self._gloo, output, tensor, opts)
        return self._run(self._all_gather(output, tensor), output, opts)

    def _all_gather(self, output: torch.Tensor, tensor: torch.Tensor) -> Call:
        whole = _packed(output)
        call = partial(self._segment.all_gather, whole, _packed(tensor))
        return _with_copies(call, _back(whole, output))

    @torch_private.not_compiled
    def all_gather_single_coalesced(
        self, outputs: Any, tensors: Any, opts: Any = None
    ) -> dist.Work:
        """Collect tensors of all workers, each in one."""
        if not _is_dense(*outputs, *tensors):
            return torch_private.all_gather_coalesced(self._gloo, outputs, tensors, opts)
        calls = map(self._all_gather, outputs, tensors)
        return self._run(_in_sequence(calls), list(outputs), opts)

    @torch_private.not_compiled
    def allgather(self, outputs: Any, tensors: Any, opts: Any = None) -> dist.Work:  # type: ignore[override]
        """Collect the tensors of all workers in a list."""
        parts, tensor = outputs[0], tensors[0]
        same = all(part.shape == tensor.shape and part.dtype == tensor.dtype for part in parts)
        if not same or not _is_dense(tensor, *parts):
            return self._gloo.allgather(outputs, tensors, *_given(opts))
        whole = tensor.new_empty((self._segment.size, *tensor.shape))
        call = partial(self._segment.all_gather, whole, _packed(tensor))
        return self._run(_with_copies(call, list(zip(whole, parts, strict=True))), outputs, opts)

    @torch_private.not_compiled
    def reduce_scatter_single(self, output: Any, tensor: Any, opts: Any = None) -> dist.Work:
        """Reduce tensors; each worker gets the part of its rank."""
        reduction = _reduction(opts, tensor.dtype)
        if reduction is None or output.dtype != tensor.dtype or not _is_dense(output, tensor):
            return torch_private.reduce_scatter_single(self._gloo, output, tensor, opts)
        return self._run(self._reduce_scatter(output, tensor, reduction), output, opts)

    def _reduce_scatter(
        self, output: torch.Tensor, tensor: torch.Tensor, reduction: Reduction
    ) -> Call:
        part = _packed(output)
        call = partial(self._segment.reduce_scatter, part, _packed(tensor), reduction)
        return _with_copies(call, _back(part, output))

    @torch_private.not_compiled
    def reduce_scatter_single_coalesced(
        self, outputs: Any, tensors: Any, opts: Any = None
    ) -> dist.Work:
        """Reduce tensors; each worker gets the part of its rank of each."""
        reductions = _reductions(opts, tensors)
        if not reductions or not _is_dense(*outputs, *tensors):
            return torch_private.reduce_scatter_coalesced(self._gloo, outputs, tensors, opts)
        calls = map(self._reduce_scatter, outputs, tensors, reductions)
        return self._run(_in_sequence(calls), list(outputs), opts)

    @torch_private.not_compiled
    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> dist.Work:  # type: ignore[override]
        """Reduce a list of tensors; each worker gets the one of its rank."""
        output, parts = outputs[0], inputs[0]
        same = all(part.shape == output.shape and part.dtype == output.dtype for part in parts)
        reduction = _reduction(opts, output.dtype)
        if reduction is None or not same or not _is_dense(output, *parts):
            return self._gloo.reduce_scatter(outputs, inputs, *_given(opts))
        stacked = torch.stack([part.detach() for part in parts])
        return self._run(self._reduce_scatter(output, stacked, reduction), outputs, opts)

    @torch_private.not_compiled
    def barrier(self, opts: Any = None) -> dist.Work:  # type: ignore[override]
        """Wait until all workers have called it."""
        return self._run(self._segment.barrier, [], opts)

    @torch_private.not_compiled
    def all_to_all_single(self, *arguments: Any) -> dist.Work:  # type: ignore[override]
        """Send a part of a tensor to each worker, by Gloo."""
        return torch_private.all_to_all_single(self._gloo, *arguments)

    @torch_private.not_compiled
    def send(self, tensors: Any, rank: int, tag: int) -> dist.Work:  # type: ignore[override]
        """Send tensors to one worker, by Gloo."""
        return self._gloo.send(tensors, rank, tag)

    @torch_private.not_compiled
    def recv(self, tensors: Any, rank: int, tag: int) -> dist.Work:  # type: ignore[override]
        """Receive tensors from one worker, by Gloo."""
        return self._gloo.recv(tensors, rank, tag)

    # Their names before PyTorch 2.13.
    _allgather_base = all_gather_single  # type: ignore[assignment]
    _reduce_scatter_base = reduce_scatter_single  # type: ignore[assignment]
    allgather_into_tensor_coalesced = all_gather_single_coalesced  # type: ignore[assignment]
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced  # type: ignore[assignment]
    alltoall_base = all_to_all_single  # type: ignore[assignment]

    def shutdown(self) -> None:
        """Leave the group."""
        self._turns.close()
        self._segment.leave()
        super().shutdown()

    def abort(self) -> None:
        """Leave the group at once."""
        self._turns.close(grace=0)
        self._segment.leave()
        super().abort()


def create_group(store: dist.Store, rank: int, size: int, timeout: timedelta) -> Any:
    """Return a group for torch.distributed; Gloo's if memory cannot be shared."""
    gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size, timeout)
    if not is_supported():
        return gloo
    if size > 1:
        try:
            segment = open_segment(
                dist.PrefixStore("segment", store), rank, size, timeout.total_seconds()
            )
            return SharedMemoryGroup(segment, gloo)
        except NotSharedError as error:
            # That several machines share no memory is only reported if it was requested.
            if rank == 0 and not (isinstance(error, ApartError) and environment.may_share_memory()):
                _tell(f"Gloo is used instead of shared memory: {error}.")
    return _group_of(gloo, rank, size)


def _group_of(gloo: Any, rank: int, size: int) -> dist.ProcessGroup:
    """Return a group that does everything by Gloo."""
    group = dist.ProcessGroup(rank, size)  # type: ignore[call-arg]
    torch_private.use_backend(group, torch.device("cpu"), gloo)
    return group


@cache
def _tell(text: str) -> None:
    """Log a warning, once for all groups of this process."""
    _log.warning(text)


def is_supported() -> bool:
    """Return whether this version of PyTorch can use shared memory; warn once if it cannot."""
    if torch_private.gloo_can_complete_groups():
        return True
    _tell(
        f"Gloo is used instead of shared memory: groups of PyTorch {torch.__version__} cannot "
        "leave a part of their work to it, and those of newer versions can."
    )
    return False


def register() -> None:
    """Register the backend "shm" with torch.distributed."""
    if NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, create_group, devices=["cpu"])
