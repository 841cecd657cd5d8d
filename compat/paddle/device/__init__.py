"""The default device of programs."""

import torch

from fleetx.static.run.place import (
    CPUPlace,
    CUDAPlace,
    Place,
    XPUPlace,
    is_compiled_with_cuda,
)
from paddle.fluid.core import is_compiled_with_npu, is_compiled_with_xpu

__all__ = [
    "XPUPlace",
    "get_cudnn_version",
    "get_device",
    "is_compiled_with_cuda",
    "is_compiled_with_npu",
    "is_compiled_with_xpu",
    "set_device",
]

_device = ""


def set_device(device: str) -> Place:
    """Select 'cpu', 'gpu' or 'gpu:N' and return the place; the CPU without CUDA."""
    global _device
    kind, _, number = device.lower().partition(":")
    if kind not in ("cpu", "gpu") or (number and not number.isdecimal()):
        raise ValueError(f"set_device takes 'cpu', 'gpu' or 'gpu:N', not {device!r}.")
    place: Place = CPUPlace() if kind == "cpu" else CUDAPlace(int(number or 0))
    _device = "cpu" if place.device().type == "cpu" else f"gpu:{number or 0}"
    return place


def get_device() -> str:
    """Return the selected device: 'cpu' or 'gpu:N'."""
    return _device or ("gpu:0" if is_compiled_with_cuda() else "cpu")


def get_cudnn_version() -> int | None:
    """Return cuDNN's version, or None without CUDA."""
    return torch.backends.cudnn.version() if is_compiled_with_cuda() else None
