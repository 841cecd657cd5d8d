"""Reading the log of a server: a torn tail is cut off, damage is an error.

A writer that was killed leaves a file that ends within its last record, which was never
acknowledged: that record is removed. Anything else that does not verify was damaged after it was
written. Requests after it build on it and cannot be applied, so reading stops with
`DamagedLogError`, which says where, and `repair` sets the unusable rest aside on explicit request.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from fleetx.checkpoint.file_errors import FormatError
from fleetx.ps.server.journal import (
    FILE_HEADER,
    FILE_MARK,
    MARK,
    PREFIX,
    chain_after,
    content_crc,
    is_sealed,
    segments,
)
from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import Message
from fleetx.ps.wire.messages import ALIGNMENT, WireError

_log = logging.getLogger("fleetx.ps")
_OLD_MARK = b"FXJ1"
_NUMBERED = 16
"""The bytes of a header that are known before the file is read: mark and number."""


class DamagedLogError(FormatError):
    """An error for a log that was damaged after it was written.

    `path` and `offset` are where, `before` counts the intact requests before it in the log, and
    `behind` those after it in the same file.
    """

    def __init__(self, path: Path, offset: int, why: str, *, before: int, behind: int) -> None:
        super().__init__(
            str(path),
            f"is damaged at byte {offset}: {why}. The state of the last snapshot and {before} "
            f"requests before the damage can be restored; {behind} intact requests after it in "
            "this file, and all later files, build on what is lost. `fleetx ps repair "
            f"{path.parent}` restores the former and sets the rest aside.",
        )
        self.path = path
        self.offset = offset
        self.before = before
        self.behind = behind


@dataclasses.dataclass
class _Record:
    message: Message
    number: int
    previous: int
    chain: int
    end: int


class LogReader:
    """Reader of consecutive segments of a log, from the one with number `start`."""

    def __init__(self, folder: Path, start: int, chain: int | None = None) -> None:
        self._files = [(number, path) for number, path in segments(folder) if number >= start]
        self._chain = chain
        self.count = 0
        """The number of requests that were read."""
        if [number for number, _ in self._files] != list(range(start, start + len(self._files))):
            raise FormatError(
                str(folder),
                f"lacks parts of the log from {start} on: it has "
                f"{', '.join(path.name for _, path in self._files)}.",
            )
        self.next_number = start + len(self._files)

    @property
    def chain(self) -> int:
        """The chain value after what was read."""
        return self._chain or 0

    def __iter__(self) -> Iterator[Message]:
        for number, path in self._files:
            yield from self._read(number, path, last=number == self.next_number - 1)

    def _read(self, number: int, path: Path, *, last: bool) -> Iterator[Message]:
        size = path.stat().st_size
        if size < FILE_HEADER.size:
            # What is not the beginning of a header was not left by a writer that was killed.
            begun = FILE_HEADER.pack(FILE_MARK, number, 0, 0)[:_NUMBERED]
            if not begun.startswith(path.read_bytes()[:_NUMBERED]):
                raise self._damage(path, 0, "the header of the file does not verify", None)
            self._cut(path, 0, last, number=number)
            return
        with open(path, "rb") as stream:
            mapped = mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_COPY)
        content = memoryview(mapped)
        self._check_header(number, path, content)
        position, records = FILE_HEADER.size, 0
        while position < size:
            record = _record(content, position)
            if isinstance(record, str):
                raise self._damage(path, position, record, content)
            if record is None:
                self._cut(path, position, last, number=number)
                return
            if (record.number, record.previous) != (records, self._chain):
                raise self._damage(
                    path, position, "the record does not continue the one before it", content
                )
            position, self._chain = record.end, record.chain
            records += 1
            self.count += 1
            yield record.message

    def _check_header(self, number: int, path: Path, content: memoryview) -> None:
        data = bytes(content[: FILE_HEADER.size])
        if data[: len(_OLD_MARK)] == _OLD_MARK:
            raise FormatError(
                str(path),
                "was written by FleetX 0.1 or older, whose logs this version does not read: start "
                "the server once with that version and save the model, or use another folder.",
            )
        mark, found, chain, _ = FILE_HEADER.unpack(data)
        if not is_sealed(data) or mark != FILE_MARK or found != number:
            raise self._damage(path, 0, "the header of the file does not verify", content)
        if self._chain is None:
            self._chain = chain
        if chain != self._chain:
            raise self._damage(
                path, 0, "it does not continue the log or the snapshot before it", content
            )

    def _cut(self, path: Path, position: int, last: bool, *, number: int) -> None:
        if not last:
            raise self._damage(path, position, "the file ends here, and more follows", None)
        if position:
            _log.warning("%s: an unfinished record at the end was cut off.", path)
            os.truncate(path, position)
        else:
            # Its writer was killed before the header was complete, thus before any request.
            path.unlink()
            self.next_number = number

    def _damage(
        self, path: Path, position: int, why: str, content: memoryview | None
    ) -> DamagedLogError:
        behind = 0 if content is None else _count_behind(content, position)
        return DamagedLogError(path, position, why, before=self.count, behind=behind)


def _record(content: memoryview, start: int) -> _Record | str | None:
    """Return the record at `start`, None if the file ends within it, or why it is damaged."""
    if start + PREFIX.size > len(content):
        return None
    prefix = bytes(content[start : start + PREFIX.size])
    mark, spec_size, total, number, previous, crc, _ = PREFIX.unpack(prefix)
    if mark != MARK or not is_sealed(prefix):
        return "the prefix of the record does not verify"
    head_at = start + PREFIX.size
    head_end = head_at + wire.HEADER_SIZE + spec_size
    body_at = -(-head_end // ALIGNMENT) * ALIGNMENT
    end = -(-(body_at + total) // ALIGNMENT) * ALIGNMENT
    if end > len(content):
        return None
    head = bytes(content[head_at:head_end])
    try:
        header = wire.unpack_header(head[: wire.HEADER_SIZE])
        specs = wire.unpack_specs(head[wire.HEADER_SIZE :], total)
    except WireError as error:
        return f"the request does not verify: {error}"
    body = content[body_at : body_at + total]
    bodies = (body[spec.offset : spec.offset + spec.size] for spec in specs)
    if content_crc(head, bodies) != crc:
        return "the request does not match its checksum"
    message = Message(header, wire.read_tensors(specs, body))
    return _Record(message, number, previous, chain_after(prefix), end)


def _count_behind(content: memoryview, position: int) -> int:
    """Return the number of intact records after a damaged one."""
    count = 0
    position += ALIGNMENT
    while position < len(content):
        record = None
        if content[position : position + len(MARK)] == MARK:
            record = _record(content, position)
        if isinstance(record, _Record):
            count += 1
            position = record.end
        else:
            position += ALIGNMENT
    return count


def set_aside(damage: DamagedLogError) -> Path:
    """Move the damaged rest of a log into a folder beside it; return that folder."""
    folder = damage.path.parent
    aside = folder / f"damaged-{damage.path.stem}-{damage.offset}"
    aside.mkdir()
    with open(damage.path, "r+b") as stream, open(aside / damage.path.name, "wb") as copy:
        stream.seek(damage.offset)
        while piece := stream.read(1 << 20):
            copy.write(piece)
        copy.flush()
        os.fsync(copy.fileno())
        stream.truncate(damage.offset)
    number = int(damage.path.stem.split("-")[1])
    for later, path in segments(folder):
        if later > number:
            path.rename(aside / path.name)
    if not damage.offset:
        with contextlib.suppress(FileNotFoundError):
            damage.path.unlink()
    return aside
