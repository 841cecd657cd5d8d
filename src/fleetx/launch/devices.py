"""GPU detection and the assignment of GPUs to workers, without importing PyTorch.

Workers see the chosen GPUs numbered from 0, so `cuda:LOCAL_RANK` and `FLAGS_selected_gpus`
name the same card.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from fleetx.launch.launch_errors import LaunchError


@dataclass(frozen=True)
class Devices:
    """The devices of each worker on one machine."""

    shares: tuple[tuple[str, ...], ...]
    """Device indices per worker, as seen by the worker."""
    on_gpu: bool
    visible: str | None = None
    """The CUDA_VISIBLE_DEVICES that makes those indices valid."""
    note: str | None = None
    """A note for the user about the choice."""


def choose(gpus: str | None, nproc: int | None, environment: Mapping[str, str]) -> Devices:
    """Divide the requested GPUs (default: all) among the workers."""
    asked = _listed("--gpus", gpus) if gpus is not None else None
    if nproc is not None and nproc < 1:
        raise LaunchError(f"--nproc_per_node must be 1 or more, but it is {nproc}.")
    present = visible_gpus(environment)
    if not present:
        return _on_cpu(asked, nproc)
    chosen = present if asked is None else asked
    unknown = [gpu for gpu in chosen if gpu not in present]
    if unknown:
        raise LaunchError(
            f"--gpus names GPU {', '.join(unknown)}, but this machine offers "
            f"{', '.join(present)} (as limited by CUDA_VISIBLE_DEVICES)."
        )
    workers = len(chosen) if nproc is None else nproc
    if len(chosen) % workers:
        raise LaunchError(
            f"--nproc_per_node {workers} does not divide {len(chosen)} GPUs evenly: choose "
            "another number of workers or of GPUs."
        )
    each = len(chosen) // workers
    numbers = [str(index) for index in range(len(chosen))]
    return Devices(
        shares=tuple(tuple(numbers[i * each : (i + 1) * each]) for i in range(workers)),
        on_gpu=True,
        visible=",".join(chosen),
    )


def _on_cpu(asked: list[str] | None, nproc: int | None) -> Devices:
    workers = nproc if nproc is not None else len(asked) if asked else 1
    if asked is None:
        return Devices(shares=tuple((str(i),) for i in range(workers)), on_gpu=False)
    return Devices(
        # Scripts parse FLAGS_selected_gpus as a number, so it stays within the given list.
        shares=tuple((asked[i % len(asked)],) for i in range(workers)),
        on_gpu=False,
        note=f"This machine has no GPU for PyTorch: --gpus {','.join(asked)} starts "
        f"{workers} CPU worker{'s' if workers > 1 else ''}.",
    )


def _listed(flag: str, text: str) -> list[str]:
    items = [item.strip() for item in text.split(",") if item.strip()]
    if not items or not all(item.isdecimal() for item in items):
        raise LaunchError(f"{flag} must be comma-separated numbers such as 0,1, not {text!r}.")
    if len(set(items)) < len(items):
        raise LaunchError(f"{flag} {text} names a GPU twice: each worker needs its own.")
    return items


def visible_gpus(environment: Mapping[str, str]) -> list[str]:
    """List the GPUs that PyTorch can use, restricted by CUDA_VISIBLE_DEVICES."""
    count = _gpu_count()
    if count == 0 or not _torch_has_gpu_support():
        return []
    narrowed = environment.get("CUDA_VISIBLE_DEVICES")
    if narrowed is None:
        return [str(index) for index in range(count)]
    return [item.strip() for item in narrowed.split(",") if item.strip() not in ("", "-1")]


def _gpu_count(root: Path = Path("/")) -> int:
    for folder, pattern in (("proc/driver/nvidia/gpus", "*"), ("dev", "nvidia[0-9]*")):
        found = len(list((root / folder).glob(pattern)))
        if found:
            return found
    command = shutil.which("nvidia-smi")  # for drivers without device files, as under WSL
    if command is None:
        return 0
    listed = subprocess.run([command, "-L"], capture_output=True, text=True)
    return len(re.findall(r"^GPU \d+", listed.stdout, flags=re.MULTILINE))


def _torch_has_gpu_support() -> bool:
    """Check torch's version file: a CPU build sees no GPUs, even if the machine has some."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return True  # workers need not use torch at all
    text = Path(os.path.dirname(spec.origin), "version.py").read_text(encoding="utf-8")
    return re.search(r"^(cuda|hip)\b[^=]*= *['\"]", text, flags=re.MULTILINE) is not None
