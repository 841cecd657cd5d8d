"""The tensors of the newest checkpoint in the launcher's memory, for a restarted worker.

The checkpoint's manifest decides what is loaded; memory only saves reading the tensors from the
disk. A file in memory is used only if its size and checksum match the manifest, whoever wrote it
and whether or not the write was completed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import torch

from fleetx.checkpoint.file_errors import FormatError
from fleetx.checkpoint.file_list import Entry
from fleetx.checkpoint.tensor_stream import read_tensors

logger = logging.getLogger("fleetx.fleet")

_OWN = 2
_MEMORY = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


def available_memory() -> int:
    """Return how many bytes this process can still use, by the machine and by its cgroup."""
    fields = dict(line.split(":", 1) for line in _MEMORY.read_text().splitlines())
    found = int(fields["MemAvailable"].split()[0]) * 1024
    limit = _GROUP / "memory.max"
    if limit.is_file() and limit.read_text().strip() != "max":
        used = int((_GROUP / "memory.current").read_text())
        pairs = (line.split() for line in (_GROUP / "memory.stat").read_text().splitlines())
        cached = {name: int(value) for name, value in pairs}["inactive_file"]
        found = min(found, int(limit.read_text()) - used + cached)
    return found


class MemoryCopy:
    """The memory files that the launcher passed to this worker, and those of its neighbours.

    Without such a launcher there are none, and the methods do nothing.
    """

    def __init__(self, paths: Sequence[str], room: int | None = None) -> None:
        """Take the files, own ones first; `room` overrides the available memory."""
        self._paths = list(paths)
        self._room = room
        self._newest: str | None = None
        self._writing: tuple[str, BinaryIO] | None = None
        self._complained = False

    # -- saving -----------------------------------------------------------------------
    def begin(self, size: int) -> None:
        """Get ready to receive a file of about `size` bytes, if at most half of the memory is used
        for it."""
        if not self._paths:
            return
        room = available_memory() if self._room is None else self._room
        if size > room // 2:
            self._give_up(f"its {size} bytes are more than half of the {room} bytes available")
            return
        path = next(path for path in self._paths[:_OWN] if path != self._newest)
        try:
            self._writing = path, open(path, "r+b", buffering=0)  # noqa: SIM115 - until the end
            os.truncate(path, 0)
        except OSError as error:
            self._give_up(str(error))

    def write(self, data: bytes | memoryview) -> None:
        """Add some bytes."""
        if self._writing is None:
            return
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._writing[1].write(rest) :]
        except OSError as error:
            self.discard()
            self._give_up(str(error))

    def publish(self) -> None:
        """Keep what was written as the newest state, and free the one before."""
        if self._writing is None:
            return
        self._newest, stream = self._writing
        self._writing = None
        stream.close()
        for path in self._paths[:_OWN]:
            if path != self._newest:
                os.truncate(path, 0)

    def discard(self) -> None:
        """Free what was written: it belongs to no checkpoint."""
        if self._writing is not None:
            path, stream = self._writing
            self._writing = None
            stream.close()
            os.truncate(path, 0)

    def _give_up(self, why: str) -> None:
        if not self._complained:
            self._complained = True
            logger.warning(
                "The newest state is not kept in memory (%s): a restarted worker loads from disk.",
                why,
            )

    # -- loading ----------------------------------------------------------------------
    def find(self, listed: Entry) -> dict[str, torch.Tensor] | None:
        """Return the tensors of a file that a manifest lists, if they are here."""
        for path in self._paths:
            try:
                if os.stat(path).st_size != listed["size"]:
                    continue
                with open(path, "rb", buffering=0) as stream:
                    tensors, found = read_tensors(stream, listed["size"], path)
            except (FormatError, OSError):
                continue  # incomplete, or the launcher has ended: not usable
            if found == listed:
                if path in self._paths[:_OWN]:
                    self._newest = path
                return tensors
        return None
