"""The device of a worker, and the device on which tensors must be to communicate them.

Only this module queries GPUs; all other code uses its results, or takes a device as an argument, so
that tests can run the GPU code on a machine without GPUs.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

_GPU = "cuda"


def gpu_count() -> int:
    """Return the number of GPUs that PyTorch can use."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def device_of_worker(local_rank: int) -> torch.device:
    """Return the device of a worker; workers share GPUs if there are fewer GPUs than workers."""
    gpus = gpu_count()
    return torch.device(_GPU, local_rank % gpus) if gpus else torch.device("cpu")


def device_of_messages(tensor: torch.Tensor) -> torch.device:
    """Return the device on which a tensor must be for the default group to send it.

    NCCL sends only from GPUs, so a CPU tensor has to be copied to the GPU first.
    """
    if tensor.device.type == "cpu" and takes_only_gpus(dist.get_backend()):
        return torch.device(_GPU)  # the current device of this process
    return tensor.device


def takes_only_gpus(backend: str) -> bool:
    """Return whether a collective library rejects CPU tensors."""
    return backend == "nccl"
