"""Places: the devices that programs run on. Without CUDA, CUDAPlace is the CPU, with a warning."""

from __future__ import annotations

import warnings

import torch

from fleetx.comm import device
from fleetx.runtime import environment


class Place:
    """A device to run on; `device()` returns the torch device."""

    def device(self) -> torch.device:
        """Return the torch device behind this place."""
        return torch.device("cpu")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def _type(self) -> str:
        return type(self).__name__

    def _equals(self, other: object) -> bool:
        return self == other

    def __hash__(self) -> int:
        return hash((type(self).__name__, tuple(self.__dict__.items())))

    def __repr__(self) -> str:
        return type(self).__name__


class AnyPlace(Place):
    """A place whose device is set by `set_place`."""

    def __init__(self) -> None:
        self._held: Place = Place()

    def set_place(self, place: Place) -> None:
        """Set the underlying place."""
        self._held = place

    def device(self) -> torch.device:
        """Return the torch device of the underlying place."""
        return self._held.device()

    def _type(self) -> str:
        return self._held._type()


class CPUPlace(Place):
    """The CPU."""


class CUDAPinnedPlace(Place):
    """Page-locked host memory; a tensor placed here lives on the CPU."""


_warned_without_cuda = False


class CUDAPlace(Place):
    """The CUDA device `device_id`, or the CPU on a machine without CUDA."""

    def __init__(self, device_id: int = 0) -> None:
        if not isinstance(device_id, int) or device_id < 0:
            raise ValueError(f"CUDAPlace takes a non-negative device number, not {device_id!r}.")
        self.device_id = device_id

    def get_device_id(self) -> int:
        """Return the device number."""
        return self.device_id

    def device(self) -> torch.device:
        """Return the CUDA device, or the CPU, with one warning, if there is no CUDA."""
        global _warned_without_cuda
        gpus = device.gpu_count()
        if gpus:
            if self.device_id >= gpus:
                raise ValueError(
                    f"CUDAPlace({self.device_id}) is out of range: this machine has {gpus} CUDA "
                    "device(s), numbered from 0."
                )
            return torch.device("cuda", self.device_id)
        if not _warned_without_cuda:
            _warned_without_cuda = True
            warnings.warn(
                f"CUDAPlace({self.device_id}) runs on the CPU: there is no CUDA device.",
                stacklevel=3,
            )
        return torch.device("cpu")

    def __repr__(self) -> str:
        return f"CUDAPlace({self.device_id})"


class XPUPlace(Place):
    """A Kunlun device, which PyTorch does not support: the constructor raises an error."""

    def __init__(self, device_id: int = 0) -> None:
        raise RuntimeError(
            f"XPUPlace({device_id}) names a Kunlun device, which PyTorch does not support: use "
            "CUDAPlace or CPUPlace."
        )


def xpu_places(device_ids: list[int] | None = None) -> list[XPUPlace]:
    """Raise an error: PyTorch does not support Kunlun devices."""
    return [XPUPlace(i) for i in device_ids or [0]]


def cpu_places(device_count: int | None = None) -> list[CPUPlace]:
    """Return `device_count` CPU places (by default CPU_NUM, or one)."""
    return [CPUPlace() for _ in range(device_count or environment.cpu_num())]


def cuda_places(device_ids: list[int] | None = None) -> list[CUDAPlace]:
    """Return the given CUDA places, by default one per CUDA device (one without CUDA)."""
    if device_ids is None:
        device_ids = list(range(max(1, device.gpu_count())))
    return [CUDAPlace(i) for i in device_ids]


def usual_device() -> str:
    """Return the default kind of device: cuda if available, else cpu."""
    return "cuda" if is_compiled_with_cuda() else "cpu"


def is_compiled_with_cuda() -> bool:
    """Return whether programs can run on CUDA on this machine."""
    return device.gpu_count() > 0
