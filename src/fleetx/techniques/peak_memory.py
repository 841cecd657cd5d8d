"""How much memory a piece of work needs at its peak, beyond what was in use before."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class PeakMemory:
    """Measures between `start` and `stop`; on a CPU by the kernel's books, where there are any."""

    def __init__(self, device: torch.device, counters: Any = torch.cuda) -> None:
        self._device = device
        self._counters = counters
        self._before = 0.0

    def start(self) -> None:
        """Begin to watch."""
        if self._device.type == "cuda":
            self._counters.reset_peak_memory_stats(self._device)
            self._before = float(self._counters.memory_allocated(self._device))
        elif _RESET.exists():
            # What the C library keeps for later would hide how much is asked for.
            trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
            if trim is not None:
                trim(0)
            _RESET.write_text("5")  # the high-water mark is set to what is in use now
            self._before = _resident("VmRSS")

    def stop(self) -> float | None:
        """Return the bytes that were in use at the peak, beyond those at the start."""
        if self._device.type == "cuda":
            return float(self._counters.max_memory_allocated(self._device)) - self._before
        return max(0.0, _resident("VmHWM") - self._before) if _RESET.exists() else None


def _resident(name: str) -> float:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(name):
            return float(line.split()[1]) * 1024
    raise RuntimeError(f"{_STATUS} has no line {name}.")
