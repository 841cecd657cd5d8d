"""Memory of messages is reused when nothing refers to it."""

import gc
import queue
import sys
import threading

import torch

from fleetx.comm.kept_buffers import KeptBuffers, KeptReduce

LARGE = (1 << 17,)


def lend(
    buffers: KeptBuffers, size: tuple[int, ...] = LARGE, *, is_part: bool = False
) -> torch.Tensor:
    return buffers.lend(size, torch.float32, is_part=is_part)


def test_memory_is_lent_again_when_its_tensors_are_gone() -> None:
    buffers = KeptBuffers()
    first = lend(buffers)
    address = first.data_ptr()
    part = torch.as_strided(first, (3,), (1,), 5)
    del first
    part.fill_(7.0)
    other = lend(buffers)  # a view still has the first one's memory
    other.zero_()
    assert other.data_ptr() != address
    assert part.tolist() == [7.0] * 3
    del part
    gc.collect()
    assert lend(buffers).data_ptr() == address


def test_memory_is_lent_by_size_for_any_type() -> None:
    buffers = KeptBuffers()
    first = lend(buffers)
    address = first.data_ptr()
    del first
    assert lend(buffers, (1 << 18,)).data_ptr() != address
    halves = buffers.lend((2, 1 << 17), torch.bfloat16, is_part=False)
    assert halves.data_ptr() == address
    assert halves.shape == (2, 1 << 17)
    assert halves.fill_(1.5).sum().item() == 1.5 * (1 << 18)


def test_as_many_messages_stay_as_are_used_at_once() -> None:
    buffers = KeptBuffers()
    before = [lend(buffers, (size << 17,)) for size in (1, 2, 3, 4)]
    sizes = [tensor.untyped_storage().nbytes() for tensor in before]
    while before:
        before.pop(0)
    assert buffers.idle_bytes() == sum(sizes[2:])  # less than two of the largest
    several = [lend(buffers, (4 << 17,)) for _ in range(6)]
    while several:
        several.pop()
    assert buffers.idle_bytes() == 2 * sizes[-1]


def test_parts_of_gradients_stay_until_the_next_step() -> None:
    reduce = KeptReduce(KeptBuffers())
    places = []
    for _ in range(2):  # steps
        parts = []
        for _ in range(5):  # blocks: what is sent, and where a part arrives
            for size in LARGE[0] * 2, LARGE[0]:
                made = reduce.allocate((size,), dtype=torch.float32, device=torch.device("cpu"))
            parts.append(made)
        places.append({part.data_ptr() for part in parts})
        del parts, made
    assert len(places[0]) == 5
    assert places[0] == places[1]


def test_other_threads_may_drop_the_last_reference() -> None:
    """As those of Gloo do when a collective has ended."""
    buffers = KeptBuffers()
    lend(buffers, (1 << 23,))  # so that many small ones may wait, which takes long to search
    given: queue.Queue[torch.Tensor | None] = queue.Queue()

    def drop() -> None:
        while given.get() is not None:
            pass

    interval, thread = sys.getswitchinterval(), threading.Thread(target=drop)
    thread.start()
    sys.setswitchinterval(1e-6)
    try:
        for step in range(800):
            tensor = lend(buffers, ((1 << 14) + step,))
            tensor[0] = step
            given.put(tensor)
    finally:
        sys.setswitchinterval(interval)
        given.put(None)
        thread.join()
    assert lend(buffers, (1 << 14,))[0] == 0  # the first one's
