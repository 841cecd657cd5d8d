"""Which cores the workers of this machine run on: `--cpu_affinity auto|none|list`.

`auto` gives each worker an equal, consecutive share of the cores that the launcher may use, within
one memory node if that is possible; it pins no worker if there are more workers than cores. A list
has one set of cores per worker, separated by semicolons: "0-3;4-7".
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fleetx.launch.launch_errors import LaunchError

_NODES = Path("/sys/devices/system/node")


def choose(text: str, workers: int, allowed: Sequence[int] | None = None) -> list[frozenset[int]]:
    """Return the cores of each worker; empty sets if it is not pinned.

    `allowed` are the cores that this machine offers, by default those of this process.
    """
    cores = sorted(os.sched_getaffinity(0) if allowed is None else allowed)
    if text == "none":
        return [frozenset()] * workers
    if text == "auto":
        return _shares(by_node(cores), workers)
    parts = text.split(";")
    if len(parts) != workers:
        raise LaunchError(
            f"--cpu_affinity {text} lists cores for {len(parts)} workers, but this machine has "
            f"{workers}: separate one set per worker by semicolons, or use auto."
        )
    found = [parse(part, text) for part in parts]
    missing = sorted(set().union(*found) - set(cores))
    if missing:
        raise LaunchError(
            f"--cpu_affinity {text} names core {missing[0]}, but fleetrun may use only "
            f"{', '.join(map(str, cores))}: choose among these, or use auto."
        )
    return found


def parse(text: str, whole: str) -> frozenset[int]:
    """Return the cores that a text such as 0-3,8 names."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise LaunchError(
                f"--cpu_affinity is auto, none, or cores such as 0-3;4-7, not {whole!r}."
            )
        found.update(range(int(first), int(last if dash else first) + 1))
    if not found:
        raise LaunchError(f"--cpu_affinity {whole} has a range without cores: write 0-3, not 3-0.")
    return frozenset(found)


def by_node(cores: Sequence[int], nodes: Path = _NODES) -> list[int]:
    """Return cores in the order of their memory nodes; unchanged if the kernel does not report
    them.
    """
    order: dict[int, int] = {}
    for folder in nodes.glob("node[0-9]*"):
        listed = (folder / "cpulist").read_text().strip()
        for core in parse(listed, listed) if listed else ():
            order[core] = int(folder.name.removeprefix("node"))
    return sorted(cores, key=lambda core: (order.get(core, 0), core))


def _shares(cores: Sequence[int], workers: int) -> list[frozenset[int]]:
    """Return equal consecutive shares; remaining cores are in no share."""
    each = len(cores) // workers
    if each == 0 or workers == 1:
        return [frozenset()] * workers
    return [frozenset(cores[i * each : (i + 1) * each]) for i in range(workers)]
