"""Parsers of Slurm's and MPI's variables: lists of machines, tasks per machine, job ids."""

from __future__ import annotations

import re
import zlib

# Above the ports of common services, below the ephemeral port range.
_FIRST_PORT, _PORTS = 20000, 12000


def first_host(nodelist: str) -> str:
    """Return the first machine of Slurm's list: 'node[3-5,9]-ib,gpu1' gives 'node3-ib'."""
    first = re.match(r"(?:[^\[\],]|\[\d[^\[\]]*\])+", nodelist.strip())
    if first is None:
        raise ValueError(f"Slurm's list of machines {nodelist!r} cannot be read.")
    return re.sub(r"\[(\d+)[^\]]*\]", r"\1", first.group())


def tasks_per_node(text: str) -> list[int]:
    """Return the number of tasks on every machine: '2(x3),1' gives [2, 2, 2, 1]."""
    counts: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if match is None:
            raise ValueError(f"Slurm's tasks per machine {text!r} cannot be read.")
        counts += [int(match.group(1))] * int(match.group(2) or 1)
    return counts


def port_of_job(*names: str) -> int:
    """Return a port that all workers of a job derive independently and other jobs hardly ever use.

    `names` identify the job for the launcher, for example Slurm's job id and step id.
    """
    return _FIRST_PORT + zlib.crc32("/".join(names).encode()) % _PORTS
