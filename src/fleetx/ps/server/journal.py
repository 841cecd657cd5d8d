"""The log of changes to a server's tables since its last snapshot.

Every request that changes state is logged before it is applied, so a restarted server applies the
same requests in the same order and arrives at the same bits. The guarantee depends on the policy:

`none`      survives the end of the process (SIGKILL, a crash), but not of the machine.
`interval`  also survives a crash of the machine, except for the last `seconds` of pushes.
`always`    loses nothing that was acknowledged: it is on disk before the reply. Slowest.

A segment is a file: a header with its number and the chain value that it continues, then records.
The prefix of a record has its length, its number, the chain value of everything before it, a CRC of
its content and a CRC of itself; the chain value after it is a hash of the prefix. So a record can
be verified on its own, and none can be missing, moved or taken from another log unnoticed.
`fleetx.ps.server.journal_reading` reads it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import struct
import threading
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import Tensors
from fleetx.ps.wire.messages import ALIGNMENT, Header

Policy = Literal["none", "interval", "always"]

FILE_HEADER = struct.Struct("<8sQQ36xI")
"""Mark, number of the segment, chain value, CRC of these."""
FILE_MARK = b"FXJLOG2\n"
PREFIX = struct.Struct("<4sIQQQII")
"""Mark, bytes of descriptors and of tensors, number, chain value, CRC of the content, own CRC."""
MARK = b"FXJ2"

_log = logging.getLogger("fleetx.ps")
_CRC = struct.Struct("<I")
_PATTERN = "journal-*.log"
# Bodies from this size on are summed in rows of so many bytes before their CRC is taken.
_LARGE = 1 << 17
_ROW = 1 << 13
# The maximum that the system accepts in one call.
_PIECES_PER_WRITE = 512


def with_crc(content: bytes) -> bytes:
    """Return a prefix or header with its CRC appended."""
    return content + _CRC.pack(zlib.crc32(content))


def is_sealed(data: bytes) -> bool:
    """Return whether a prefix or header has the right CRC."""
    return with_crc(data[: -_CRC.size]) == data


def content_crc(head: bytes, bodies: Iterable[bytes | memoryview]) -> int:
    """Return the CRC of a record's header, descriptors and tensors."""
    value = zlib.crc32(head)
    for data in bodies:
        whole = len(data) // _ROW * _ROW if len(data) >= _LARGE else 0
        if whole:
            value = zlib.crc32(_sums(data[:whole]), value)
        value = zlib.crc32(data[whole:], value)
    return value


def _sums(data: bytes | memoryview) -> bytes:
    """Return the sums of the rows and of the columns of a matrix of 64-bit words.

    At several times the speed of a CRC they change with every flipped bit, every moved word and
    every moved row: what leaves the sum of a row as it was changes those of columns.
    """
    words = np.frombuffer(data, np.uint64).reshape(-1, _ROW // 8)
    return words.sum(1, dtype=np.uint64).tobytes() + words.sum(0, dtype=np.uint64).tobytes()


def chain_after(prefix: bytes) -> int:
    """Return the chain value after a record."""
    return int.from_bytes(hashlib.blake2b(prefix, digest_size=8).digest(), "little")


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

    def __init__(
        self, path: Path, policy: Policy, seconds: float, *, number: int = 0, chain: int = 0
    ) -> None:
        if policy not in get_args(Policy):
            raise ValueError(f"fsync={policy!r}: use {', '.join(get_args(Policy))}.")
        self._policy = policy
        self._stream = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self.chain = chain
        """The chain value after the last record."""
        self.records = 0
        self.size = 0
        try:
            header = with_crc(FILE_HEADER.pack(FILE_MARK, number, chain, 0)[: -_CRC.size])
            self._write([header])
            if policy == "always":
                os.fdatasync(self._stream)
        except OSError:
            os.close(self._stream)
            path.unlink()
            raise
        self.size = FILE_HEADER.size
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
        prefix = with_crc(
            PREFIX.pack(
                MARK,
                len(described),
                wire.body_size(specs),
                self.records,
                self.chain,
                content_crc(head, bodies),
                0,
            )[: -_CRC.size]
        )
        pieces: list[bytes | memoryview] = [prefix + head + _padding(len(prefix) + len(head))]
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
        self.chain = chain_after(prefix)
        self.records += 1

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
