"""Communication hooks of DistributedDataParallel: how one bucket of gradients is averaged."""

# Without `from __future__ import annotations`: torch looks at the annotations of hooks.
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist

from fleetx.comm.gradient_all_reduce import AllReduceSettings, GradientAllReduce


def exchange_halves(
    state: tuple[torch.dtype, Callable[[], float]], bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """Average one bucket over all workers, in half precision.

    Unlike torch's own hook, which divides already rounded values, it rounds once, as programs do.
    """
    dtype, scale = state[0], state[1]()
    buffer = bucket.buffer()
    travelling = torch.empty_like(buffer, dtype=dtype)
    torch.div(buffer, dist.get_world_size() / scale, out=travelling)
    work = dist.all_reduce(travelling, async_op=True)
    assert work is not None
    return work.get_future().then(lambda done: _unscale(buffer.copy_(done.value()[0]), scale))


def _unscale(buffer: torch.Tensor, scale: float) -> torch.Tensor:
    return buffer if scale == 1.0 else buffer.mul_(1.0 / scale)


class HookState:
    """State of the communication hook: the all-reduce, and a thread that waits for it."""

    def __init__(self, settings: AllReduceSettings, scale: Callable[[], float]) -> None:
        self.all_reduce = GradientAllReduce(settings)
        self.scale = scale if settings.dtype is not None else lambda: 1.0
        self.waiting = ThreadPoolExecutor(1)


def exchange(state: HookState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average one bucket over all workers."""
    buffer = bucket.buffer()
    scale = state.scale()
    buffer.div_(dist.get_world_size() / scale)
    handle = state.all_reduce.start(buffer)
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()

    def finish() -> None:
        try:
            handle.wait()
        except Exception as error:  # passed to backward, which raises it
            future.set_exception(error)  # type: ignore[arg-type]  # torch's own stub is wrong
        else:
            future.set_result(_unscale(buffer, scale))

    state.waiting.submit(finish)
    return future
