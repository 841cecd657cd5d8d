"""Collectives in shared memory, by threads of this process and by workers of a job."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import warm_start
from compiled_or_not import need_compiled_modules
from fleetx.comm import segment_meeting
from fleetx.comm.late_collectives import Turns
from fleetx.comm.segment_meeting import NotSharedError, open_segment
from fleetx.comm.shared_memory import SharedMemoryGroup
from fleetx.kernels import shared_segment
from fleetx.kernels.shared_segment import CHUNK, Segment
from waiting import LIMIT

WORKER = Path(__file__).parent / "workers" / "shared_memory_job.py"
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]


@pytest.fixture(autouse=True)
def _memory() -> None:
    need_compiled_modules(shared_segment.MODULE)
    reason = shared_segment.why_impossible()
    if reason is not None:
        pytest.skip(reason)


class Group(SharedMemoryGroup):
    """One member; messages that memory does not carry fail, since there is no Gloo beside it."""

    def __init__(self, segment: Segment) -> None:
        dist.ProcessGroup.__init__(self, segment.rank, segment.size)
        self._segment = segment
        self._turns = Turns()


def together(size: int, work: Callable[[Group], Any], seconds: float = LIMIT) -> list[Any]:
    """Run one member per thread; return their results, or the exceptions they raise."""
    store, results = dist.HashStore(), [None] * size

    def run(rank: int) -> None:
        try:
            segment = open_segment(dist.PrefixStore("group", store), rank, size, seconds)
            try:
                results[rank] = work(Group(segment))
            finally:
                segment.leave()
        except Exception as error:
            results[rank] = error  # type: ignore[call-overload]

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def values(dtype: torch.dtype, count: int, size: int) -> list[torch.Tensor]:
    if dtype.is_floating_point:
        return [(torch.randn(count) * 3).to(dtype) for _ in range(size)]
    return [torch.randint(0, 5, (count,)).to(dtype) for _ in range(size)]


def expected(parts: list[torch.Tensor], combine: Callable[..., torch.Tensor]) -> torch.Tensor:
    """Combine in the order of ranks; half precision in single precision, rounded once."""
    dtype = parts[0].dtype
    half = dtype in (torch.bfloat16, torch.float16)
    result = parts[0].float() if half else parts[0].clone()
    for part in parts[1:]:
        result = combine(result, part.float() if half else part)
    return result.to(dtype)


def options(operation: Any) -> dist.AllreduceOptions:
    result = dist.AllreduceOptions()
    result.reduceOp = operation
    return result


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
@pytest.mark.parametrize("size", [2, 3])
def test_every_type_and_size(dtype: torch.dtype, size: int) -> None:
    for count in (0, 1, 7, 5000, CHUNK // dtype.itemsize * 2 + 3):
        parts = values(dtype, count, size)
        want = expected(parts, torch.add)

        def work(group: Group, parts=parts, count=count) -> Any:
            rank = group.rank()
            summed, sent = parts[rank].clone(), parts[rank].clone()
            group.allreduce([summed])
            root = dist.BroadcastOptions()
            root.rootRank = size - 1
            group.broadcast([sent], root)
            gathered = torch.empty(size * count, dtype=dtype)
            group.all_gather_single(gathered, parts[rank])
            listed = [torch.empty(count, dtype=dtype) for _ in range(size)]
            group.allgather([listed], [parts[rank]])
            piece = torch.empty(count, dtype=dtype)
            group.reduce_scatter_single(piece, torch.cat([parts[rank]] * size))
            group.barrier()
            return summed, sent, gathered, torch.cat(listed), piece

        for result in together(size, work):
            summed, sent, gathered, listed, piece = result
            assert torch.equal(summed, want)
            assert torch.equal(sent, parts[-1])
            assert torch.equal(gathered, torch.cat(parts))
            assert torch.equal(listed, torch.cat(parts))
            assert torch.equal(piece, want)


@pytest.mark.parametrize(
    ("operation", "combine"),
    [
        (dist.ReduceOp.PRODUCT, torch.mul),
        (dist.ReduceOp.MIN, torch.minimum),
        (dist.ReduceOp.MAX, torch.maximum),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_operations(operation: Any, combine: Any, dtype: torch.dtype) -> None:
    parts = values(dtype, 20_001, 2)
    if dtype.is_floating_point:
        parts[0][3], parts[1][4] = float("nan"), float("nan")

    def work(group: Group) -> torch.Tensor:
        tensor = parts[group.rank()].clone()
        group.allreduce([tensor], options(operation))
        return tensor

    for result in together(2, work):
        torch.testing.assert_close(result, expected(parts, combine), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_every_half_precision_number(dtype: torch.dtype) -> None:
    numbers = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    others = numbers[torch.randperm(len(numbers))]

    def work(group: Group) -> torch.Tensor:
        tensor = (numbers if group.rank() == 0 else others).clone()
        group.allreduce([tensor])
        return tensor

    want = expected([numbers, others], torch.add)
    for result in together(2, work):
        torch.testing.assert_close(result, want, rtol=0, atol=0, equal_nan=True)


def test_strided_outputs_are_filled() -> None:
    def work(group: Group) -> Any:
        rows = torch.zeros(4, 6)
        listed = [rows[:, rank] for rank in range(2)]
        group.allgather([listed], [torch.full((4,), 1.0 + group.rank())])
        piece = torch.zeros(3, 4).T
        parts = [torch.full((4, 3), float(rank)) for rank in range(2)]
        group.reduce_scatter([piece], [parts])
        return rows, piece

    for rank, (rows, piece) in enumerate(together(2, work)):
        assert rows.sum(0).tolist() == [4, 8, 0, 0, 0, 0]
        assert torch.equal(piece, torch.full((4, 3), 2.0 * rank))


def test_different_calls_are_named_on_all_workers() -> None:
    def work(group: Group) -> None:
        group.allreduce([torch.zeros(2)])
        group.allreduce([torch.zeros(3 + group.rank())])

    first, second = map(str, together(2, work))
    assert (
        "worker 0 all_reduce (SUM) of 3 elements of float32, worker 1 all_reduce (SUM) of 4"
        in first
    )
    assert (
        "worker 1 all_reduce (SUM) of 4 elements of float32, worker 0 all_reduce (SUM) of 3"
        in second
    )


def asynchronous() -> dist.AllreduceOptions:
    result = dist.AllreduceOptions()
    result.asyncOp = True
    return result


def test_asynchronous_collectives_of_two_groups_may_start_in_any_order() -> None:
    store = dist.HashStore()

    def work(group: Group) -> list[float]:
        rank = group.rank()
        other = Group(open_segment(dist.PrefixStore("2", store), rank, 2, LIMIT))
        groups = [group, other] if rank == 0 else [other, group]
        tensors = [torch.full((100_000,), 1.0 + rank) for _ in groups]
        started = [
            each.allreduce([tensor], asynchronous())
            for each, tensor in zip(groups, tensors, strict=True)
        ]
        # A call that waits takes its turn after those that have not ended.
        behind = torch.full((3,), 10.0 + rank)
        groups[0].allreduce([behind]) if rank == 0 else groups[1].allreduce([behind])
        for each in started:
            each.wait()
        results = [tensor.unique().item() for tensor in (*tensors, behind)]
        other.barrier()
        other.shutdown()
        group.barrier()
        return results

    assert together(2, work) == [[3.0, 3.0, 21.0]] * 2


def test_an_asynchronous_call_that_waits_in_vain_fails_when_it_is_waited_for() -> None:
    given_up = threading.Event()

    def work(group: Group) -> None:
        group.barrier()
        if group.rank() == 1:
            given_up.wait(LIMIT)
            return
        started = group.allreduce([torch.zeros(5)], asynchronous())
        given_up.set()
        started.wait()

    waiting, _ = together(2, work)
    assert "worker 1 has left the group" in str(waiting)


def test_a_late_collective_fails_when_its_worker_leaves() -> None:
    left = threading.Event()

    def work(group: Group) -> str:
        group.barrier()
        if group.rank() == 1:
            left.wait(LIMIT)
            return ""
        first, second = (group.allreduce([torch.zeros(5)], asynchronous()) for _ in range(2))
        group._turns.close(grace=0)
        left.set()
        texts = []
        for each in (first, second):
            with pytest.raises(RuntimeError) as error:
                each.wait()
            texts.append(str(error.value))
        return texts[0] + texts[1]

    text, _ = together(2, work)
    assert text.count("this worker has left the group before all others called a collective") == 2


def test_strides_may_differ_between_workers() -> None:
    def work(group: Group) -> list[list[float]]:
        rank = group.rank()
        plain = torch.arange(6.0).view(2, 3) + rank
        tensor = plain.t().contiguous().t() if rank == 0 else plain.clone()
        results = [tensor.clone(memory_format=torch.preserve_format) for _ in range(3)]
        group.allreduce([results[0]])
        group.broadcast([results[1]])
        group.allreduce_coalesced([results[2]])
        wide = torch.zeros(3, 4).t() if rank == 0 else torch.zeros(4, 3)
        group.all_gather_single(wide, tensor)
        half = torch.zeros(3, 1).t() if rank == 0 else torch.zeros(1, 3)
        group.reduce_scatter_single(half, tensor)
        return [each.flatten().tolist() for each in (*results, wide, half)]

    total = [2 * x + 1.0 for x in range(6)]
    first = [float(x) for x in range(6)]
    gathered = first + [x + 1 for x in first]
    same = [total, first, total, gathered]
    assert together(2, work) == [[*same, total[:3]], [*same, total[3:]]]


def test_large_groups_have_smaller_buffers() -> None:
    assert shared_segment.chunk(2) == CHUNK
    assert 256 * 2 * shared_segment.chunk(256) == shared_segment.MOST_BYTES
    os.close(shared_segment.create(256, bytes(shared_segment.TOKEN_BYTES)))


def test_a_group_that_failed_is_not_used_again() -> None:
    def work(group: Group) -> list[str]:
        texts = []
        for _ in range(2):
            with pytest.raises(RuntimeError) as error:
                group.barrier() if group.rank() else group.allreduce([torch.zeros(1)])
            texts.append(str(error.value))
        return texts

    for texts in together(2, work):
        assert texts[0] == texts[1]
        assert "worker" in texts[0]


def test_a_worker_that_left_is_named() -> None:
    def work(group: Group) -> None:
        group.barrier()
        if group.rank() == 1:
            group.barrier()

    left, waiting = together(2, work)
    assert left is None
    assert "worker 0 has left the group" in str(waiting)


def test_a_worker_that_does_not_come_is_named_after_the_timeout() -> None:
    arrived = threading.Event()

    def work(group: Group) -> None:
        group.barrier()
        if group.rank() == 1:
            arrived.wait(LIMIT)
            return
        group._segment.seconds = 0.1
        try:
            group.allreduce([torch.zeros(5)])
        finally:
            arrived.set()

    waiting, _ = together(2, work)
    assert "worker 1 did not call a collective" in str(waiting)


def test_sizes_that_do_not_match_are_refused_before_memory_is_touched() -> None:
    def work(group: Group) -> list[str]:
        texts = []
        for call, big, small in (
            (group.all_gather_single, torch.zeros(5), torch.zeros(2)),
            (group.reduce_scatter_single, torch.zeros(2), torch.zeros(5)),
        ):
            with pytest.raises(ValueError, match="for each of 2 workers") as error:
                call(big, small)
            texts.append(str(error.value))
        return texts

    assert together(2, work)[0][0].startswith("the output of all_gather has 20 bytes")


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("another machine", "the workers are not on one machine"),
        ("!the module is missing", "worker 1: the module is missing"),
    ],
)
def test_workers_that_cannot_share_memory_are_told_why(place: str, text: str) -> None:
    store = dist.HashStore()
    store.set("place/1", place)
    with pytest.raises(NotSharedError, match=text):
        open_segment(store, 0, 2, LIMIT)


def test_a_wrong_segment_is_refused() -> None:
    store = dist.HashStore()
    store.set("place/0", segment_meeting._place())
    with open(__file__) as other:
        store.set("segment", f"{threading.get_native_id()} {other.fileno()} {'00' * 16}")
        store.set("joined/0", "joined")
        with pytest.raises(NotSharedError, match="worker 1: the memory of .* cannot be mapped"):
            open_segment(store, 1, 2, LIMIT)


def run_job(folder: Path, *arguments: str, workers: int = 2) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fleetx.launch", "--nproc_per_node", str(workers)]
    command += ["--log_dir", str(folder / "log"), *arguments]
    return subprocess.run(
        command,
        env=warm_start.environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        cwd=folder,
    )


@pytest.mark.slow
def test_training_gives_the_bits_of_gloo(tmp_path: Path) -> None:
    saved = []
    for backend, flags in (("gloo", ["--backend", "gloo"]), ("shm", [])):
        file = tmp_path / f"{backend}.pt"
        done = run_job(tmp_path, *flags, str(WORKER), "train", str(file))
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"backend {backend}" in done.stdout
        saved.append(torch.load(file))
    assert saved[0].keys() == saved[1].keys()
    for name, tensor in saved[0].items():
        assert torch.equal(tensor, saved[1][name]), name


@pytest.mark.slow
def test_a_killed_worker_is_named_by_the_one_that_waits(tmp_path: Path) -> None:
    done = run_job(tmp_path, str(WORKER), "die", str(tmp_path))
    assert done.returncode != 0
    assert "worker 1 has died" in (tmp_path / "heard").read_text()
