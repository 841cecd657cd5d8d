"""Copies of some tensors of a checkpoint, at the speed of copying files.

Checksums are per tensor, so the copy has those of the source: nothing is computed, and damage to
the source is detected when the copy is loaded. The kernel copies the bytes from file to file if it
can.
"""

from __future__ import annotations

import errno
import json
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import torch

from fleetx.checkpoint.atomic import atomic_write, inside, write_bytes
from fleetx.checkpoint.file_errors import FormatError
from fleetx.checkpoint.manifest import (
    MANIFEST,
    TYPE_NAMES,
    data_file,
    make_manifest,
    ordered,
    read_manifest,
    safetensors_header,
)
from fleetx.checkpoint.sealed_json import seal

_CHUNK = 16 << 20
_LONGEST_HEADER = 100 << 20
_NOT_HERE = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF}


def read_meta(folder: Path) -> dict[str, Any]:
    """Return the `meta` argument of `save_state`."""
    meta: dict[str, Any] = read_manifest(folder / MANIFEST)["meta"]
    return meta


def copy_state(source: Path, target: Path, names: Sequence[str], meta: Mapping[str, Any]) -> None:
    """Write the tensors of these names, of the checkpoint in `source`, as one in `target`."""
    manifest = read_manifest(source / MANIFEST)
    path = inside(source, manifest["file"])
    missing = [name for name in names if name not in manifest["tensors"]]
    if missing:
        raise FormatError(str(path), f"has no tensor {missing[0]!r}.")
    entries = {name: manifest["tensors"][name] for name in names}
    with path.open("rb") as data:
        places = _places(path, data, entries)
        shapes = ordered(
            {
                name: torch.empty(entry["shape"], dtype=_dtype(path, entry), device="meta")
                for name, entry in entries.items()
            }
        )
        text = seal(make_manifest(entries, meta))
        with atomic_write(target / data_file(entries)) as stream:
            stream.write(safetensors_header(shapes))
            stream.flush()
            for name in shapes:
                begin, end = places[name]
                _copy(data, stream, begin, end - begin)
    write_bytes(target / MANIFEST, text)


def _dtype(path: Path, entry: Mapping[str, Any]) -> torch.dtype:
    found = getattr(torch, str(entry.get("dtype")), None)
    if found not in TYPE_NAMES:
        raise FormatError(str(path), f"has a tensor of an unknown type {entry.get('dtype')!r}.")
    return found


def _places(path: Path, data: BinaryIO, entries: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Return the byte ranges of tensors in a safetensors file."""
    size = os.fstat(data.fileno()).st_size
    try:
        (length,) = struct.unpack("<Q", data.read(8))
        if length > min(size - 8, _LONGEST_HEADER):
            raise ValueError(f"a header of {length} bytes")
        header = json.loads(data.read(length))
        found = {}
        for name, entry in entries.items():
            begin, end = (8 + length + int(place) for place in header[name]["data_offsets"])
            wanted = _dtype(path, entry).itemsize
            for extent in entry["shape"]:
                wanted *= extent
            if not 8 + length <= begin <= end <= size or end - begin != wanted:
                raise ValueError(f"{name!r} has the wrong offset")
            found[name] = (begin, end)
    except (ValueError, KeyError, TypeError, struct.error, RecursionError) as error:
        raise FormatError(
            str(path), f"is truncated or not a safetensors file ({error})."
        ) from error
    return found


def _copy(source: BinaryIO, target: BinaryIO, begin: int, count: int) -> None:
    """Append bytes of a file to another one."""
    at, end = begin, begin + count
    try:
        while at < end:
            done = os.copy_file_range(source.fileno(), target.fileno(), end - at, at)
            if not done:
                break
            at += done
    except OSError as error:
        if error.errno not in _NOT_HERE:
            raise
    target.seek(0, os.SEEK_END)
    source.seek(at)
    while at < end:
        piece = source.read(min(_CHUNK, end - at))
        if not piece:
            raise EOFError(f"{source.name} was truncated while it was copied.")
        target.write(piece)
        at += len(piece)
    target.flush()
