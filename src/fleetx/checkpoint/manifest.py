"""FleetX's own checkpoints: one safetensors file, and a JSON manifest with a checksum per tensor.

The manifest is renamed last, after the tensors are on disk under a different name, so a crash
between the two leaves the previous checkpoint intact. Loading verifies everything against the
manifest before it returns, and the manifest against its own checksum. Neither direction uses
pickle.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import torch

from fleetx.checkpoint.atomic import atomic_write, inside, write_bytes
from fleetx.checkpoint.file_errors import FormatError
from fleetx.checkpoint.sealed_json import digest, read_json, seal

MANIFEST = "manifest.json"
_FORMAT = "fleetx-state"
_VERSION = 2
# Bytes read at once to compute a checksum.
_PIECE = 1 << 17

TYPE_NAMES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
}


def _raw(tensor: torch.Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")


def _form(tensor: torch.Tensor) -> dict[str, Any]:
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}


def write_safetensors(stream: BinaryIO, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write the safetensors format tensor by tensor; the library would copy all tensors first."""
    tensors = ordered(tensors)
    stream.write(safetensors_header(tensors))
    for tensor in tensors.values():
        stream.write(_raw(tensor))


def ordered(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return tensors in the order of a file: safetensors aligns each to its element size."""
    return dict(sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])))


def safetensors_header(tensors: Mapping[str, torch.Tensor]) -> bytes:
    """Return the header of a file with the bytes of these tensors, one after the other."""
    header: dict[str, Any] = {}
    offset = 0
    for name, tensor in tensors.items():
        if tensor.dtype not in TYPE_NAMES:
            raise TypeError(f"Tensor {name!r} has type {tensor.dtype}, which cannot be saved.")
        end = offset + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": TYPE_NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def data_file(entries: Mapping[str, Any]) -> str:
    """Return the name of the file of tensors with these manifest entries."""
    described = json.dumps(entries, sort_keys=True).encode()
    return f"tensors-{hashlib.blake2b(described, digest_size=8).hexdigest()}.safetensors"


def make_manifest(entries: Mapping[str, Any], meta: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a manifest of tensors with these entries."""
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "file": data_file(entries),
        "tensors": entries,
        "meta": dict(meta or {}),
    }


def save_state(
    dirname: str | os.PathLike[str],
    tensors: Mapping[str, torch.Tensor],
    meta: Mapping[str, Any] | None = None,
) -> None:
    """Write ``tensors`` and the JSON-serializable ``meta`` as the checkpoint in folder ``dirname``.

    An existing checkpoint is replaced as a whole or not at all.
    """
    folder = Path(dirname)
    entries = {n: {**_form(t), "blake2b": digest(_raw(t))} for n, t in tensors.items()}
    text = seal(make_manifest(entries, meta))
    data_name = data_file(entries)
    with atomic_write(folder / data_name) as stream:
        write_safetensors(stream, tensors)
    write_bytes(folder / MANIFEST, text)
    for old in folder.glob("tensors-*.safetensors"):
        if old.name != data_name:
            old.unlink()


def read_manifest(path: Path) -> dict[str, Any]:
    """Read a manifest and verify it by its own checksum."""
    manifest = read_json(
        path, _FORMAT, _VERSION, unsealed=1, name="the manifest of a FleetX checkpoint"
    )
    if not isinstance(manifest.get("tensors"), dict) or not isinstance(manifest.get("file"), str):
        raise FormatError(str(path), "does not list its tensors.")
    return manifest


def _verify(
    path: Path, tensors: Mapping[str, torch.Tensor], entries: Mapping[str, Any], threads: int
) -> None:
    """Compare a file with its manifest.

    The file is read instead of the tensors, which are mapped: a process that needs few rows of a
    large table then maps few of its pages, and closing it is fast.
    """
    for name in entries.keys() ^ tensors.keys():
        where = "the manifest lists it" if name in entries else "the manifest does not list it"
        raise FormatError(str(path), f"file and manifest differ in tensor {name!r}: {where}.")
    with path.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        header = json.loads(stream.read(length))

    def check(name: str) -> None:
        begin, end = header[name]["data_offsets"]
        with path.open("rb") as stream:
            stream.seek(8 + length + begin)
            checksum = _checksum_of(stream, end - begin)
        found = {**_form(tensors[name]), "blake2b": checksum}
        if found != entries[name]:
            wrong = next(key for key in found if found[key] != entries[name].get(key))
            raise FormatError(
                str(path),
                f"tensor {name!r} has {wrong} {found[wrong]}, but the manifest has "
                f"{entries[name].get(wrong)}; the file was damaged or replaced.",
            )

    if threads == 1:
        for name in tensors:
            check(name)
        return
    largest_first = sorted(tensors, key=lambda name: -tensors[name].nbytes)
    with ThreadPoolExecutor(threads, "checksums") as pool:
        for _ in pool.map(check, largest_first):
            pass


def _checksum_of(stream: BinaryIO, size: int) -> str:
    """Return the checksum of the next bytes of a file, read in pieces."""
    found = hashlib.blake2b(digest_size=16)
    piece = memoryview(bytearray(min(size, _PIECE)))
    while size:
        count = stream.readinto(piece[:size])  # type: ignore[attr-defined]  # of BufferedReader
        if not count:
            raise FormatError(stream.name, f"ends {size} bytes early; the file is truncated.")
        found.update(piece[:count])
        size -= count
    return found.hexdigest()


def load_state(
    dirname: str | os.PathLike[str], *, threads: int = 1
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Read the checkpoint in ``dirname``: ``(tensors, meta)``, every tensor verified.

    Args:
        dirname: the folder of the checkpoint.
        threads: the number of tensors to verify at a time; more than one if the process has
            idle cores.
    """
    folder = Path(dirname)
    manifest = read_manifest(folder / MANIFEST)
    path = inside(folder, manifest["file"])
    tensors = read_safetensors(path)
    _verify(path, tensors, manifest["tensors"], threads)
    return tensors, manifest["meta"]


def read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    """Read a safetensors file; raise FormatError if it is invalid."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except SafetensorError as error:
        raise FormatError(
            str(path), f"is truncated or not a safetensors file ({error})."
        ) from error
