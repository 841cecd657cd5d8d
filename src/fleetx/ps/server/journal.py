"""The log of changes to a server's tables since its last snapshot.

Every request that changes state is logged before it is applied, so a restarted server applies the
same requests in the same order and arrives at the same bits. The guarantee depends on the policy:

`none`      survives the end of the process (SIGKILL, a crash), but not of the machine.
`interval`  also survives a crash of the machine, except for the last `seconds` of pushes.
`always`    loses nothing that was acknowledged: it is on disk before the reply. Slowest.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import struct
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from fleetx.checkpoint.errors import FormatError
from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import Message, Tensors
from fleetx.ps.wire.messages import ALIGNMENT, Header, WireError

Policy = Literal["none", "interval", "always"]

_log = logging.getLogger("fleetx.ps")
_RECORD = struct.Struct("<4sIQQ")
_MARK = b"FXJ1"
_ODD = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1
_PATTERN = "journal-*.log"
# The maximum that the system accepts in one call.
_PIECES_PER_WRITE = 512


def _sum(data: memoryview) -> int:
    # A checksum at memory speed: it has to detect missing pages and truncated records, not forgery.
    whole = len(data) // 8 * 8
    words = np.frombuffer(data[:whole], np.uint64)
    return (int(words.sum(dtype=np.uint64)) + int.from_bytes(data[whole:], "little")) & _WORD


def _checksum(head: bytes, bodies: Iterator[memoryview]) -> int:
    total = zlib.crc32(head)
    for data in bodies:
        total = (total * _ODD + _sum(data)) & _WORD
    return total


def _padding(size: int) -> bytes:
    return bytes(-size % ALIGNMENT)


def segment_path(folder: Path, number: int) -> Path:
    """Return the file of a segment of the log."""
    return folder / f"journal-{number:012d}.log"


def segments(folder: Path) -> list[tuple[int, Path]]:
    """Return the existing segments of the log, in order."""
    return sorted((int(path.stem.split("-")[1]), path) for path in folder.glob(_PATTERN))


class Journal:
    """The segment of the log that is being written."""

    def __init__(self, path: Path, policy: Policy, seconds: float) -> None:
        if policy not in get_args(Policy):
            raise ValueError(f"fsync={policy!r}: use {', '.join(get_args(Policy))}.")
        self._policy = policy
        self._stream = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self.size = 0
        self._synced = 0
        self._closing = threading.Event()
        self._syncer: threading.Thread | None = None
        if policy == "interval":
            self._syncer = threading.Thread(
                target=self._sync_now_and_then, args=(seconds,), name="journal", daemon=True
            )
            self._syncer.start()

    def append(self, header: Header, tensors: Tensors) -> None:
        """Write one record; raise OSError and leave no part of it if that fails."""
        specs = wire.lay_out(tensors)
        described = wire.pack_specs(specs)
        head = header.pack() + described
        bodies = [wire.as_bytes(tensor) for _, tensor in tensors]
        record = _RECORD.pack(
            _MARK, len(described), wire.body_size(specs), _checksum(head, iter(bodies))
        )
        pieces: list[bytes | memoryview] = [record + head + _padding(len(record) + len(head))]
        for data in bodies:
            pieces += [data, _padding(len(data))]
        try:
            self._write([piece for piece in pieces if len(piece)])
            if self._policy == "always":
                os.fdatasync(self._stream)
        except OSError:
            os.ftruncate(self._stream, self.size)
            os.lseek(self._stream, self.size, os.SEEK_SET)
            raise
        self.size = os.lseek(self._stream, 0, os.SEEK_CUR)

    def _write(self, pieces: list[bytes | memoryview]) -> None:
        for first in range(0, len(pieces), _PIECES_PER_WRITE):
            left = pieces[first : first + _PIECES_PER_WRITE]
            while left:
                written = os.writev(self._stream, left)
                while left and written >= len(left[0]):
                    written -= len(left.pop(0))
                if written:
                    left[0] = memoryview(left[0])[written:]

    def _sync_now_and_then(self, seconds: float) -> None:
        while not self._closing.wait(seconds):
            size = self.size
            if size != self._synced:
                try:
                    os.fdatasync(self._stream)
                except OSError as error:
                    _log.error("The log of pushes could not be flushed to disk: %s.", error)
                self._synced = size

    def close(self) -> None:
        """Stop writing; the file remains."""
        self._closing.set()
        if self._syncer is not None:
            self._syncer.join()
        if self._policy != "none":
            os.fdatasync(self._stream)
        os.close(self._stream)


def read(path: Path, *, last: bool) -> Iterator[Message]:
    """Yield the records of a file in order.

    The `last` file may end within a record if its writer was killed: that record, which was never
    acknowledged, is truncated.
    """
    size = path.stat().st_size
    if not size:
        return
    with open(path, "r+b") as stream:
        content = mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_COPY)
        position = 0
        while position < size:
            found = _record(memoryview(content), position)
            if found is None:
                break
            message, position = found
            yield message
        if position < size:
            if not last:
                raise FormatError(
                    str(path),
                    f"is damaged at byte {position}, and more of the log follows; remove this file "
                    "and the later ones to continue without their contents.",
                )
            _log.warning("%s: an unfinished record at the end was cut off.", path)
            stream.truncate(position)


def _record(content: memoryview, start: int) -> tuple[Message, int] | None:
    head_at = start + _RECORD.size
    if head_at > len(content):
        return None
    mark, spec_size, total, checksum = _RECORD.unpack_from(content, start)
    head_end = head_at + wire.HEADER_SIZE + spec_size
    body_at = -(-head_end // ALIGNMENT) * ALIGNMENT
    end = -(-(body_at + total) // ALIGNMENT) * ALIGNMENT
    if mark != _MARK or end > len(content):
        return None
    head = bytes(content[head_at:head_end])
    with contextlib.suppress(WireError):
        header = wire.unpack_header(head[: wire.HEADER_SIZE])
        specs = wire.unpack_specs(head[wire.HEADER_SIZE :], total)
        body = content[body_at : body_at + total]
        bodies = (body[spec.offset : spec.offset + spec.size] for spec in specs)
        if _checksum(head, bodies) == checksum:
            return Message(header, wire.read_tensors(specs, body)), end
    return None
