"""Which device a worker computes on, and where tensors must lie that it exchanges.

Only this module asks whether there are GPUs; the rest takes its answers, or a device, and so can be
run for GPUs by tests on a machine that has none.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

_GPU = "cuda"


def gpu_count() -> int:
    """Return how many GPUs PyTorch can use here."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def device_of_worker(local_rank: int) -> torch.device:
    """Return the device of a worker; where there are fewer GPUs than workers, some share one."""
    gpus = gpu_count()
    return torch.device(_GPU, local_rank % gpus) if gpus else torch.device("cpu")


def device_of_messages(tensor: torch.Tensor) -> torch.device:
    """Return where a tensor must lie for the default group to send it.

    NCCL sends from GPUs only, so that a value of the host takes the way over the GPU.
    """
    if tensor.device.type == "cpu" and takes_only_gpus(dist.get_backend()):
        return torch.device(_GPU)  # the one that this process has chosen
    return tensor.device


def takes_only_gpus(backend: str) -> bool:
    """Tell whether a collective library refuses tensors of the CPU."""
    return backend == "nccl"
