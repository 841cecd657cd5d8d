"""What a `.pt2` file must not contain: pickles with code, and native code.

torch.export.load runs any pickle that such a file marks as one, and falls back to unrestricted
unpickling of the sample inputs. A file is therefore inspected before torch reads it: tensors must
be stored raw, sample inputs must load with `weights_only=True`, and libraries of AOTInductor,
script objects and opaque objects are rejected.
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import torch

from fleetx.checkpoint.file_errors import FormatError

_CONFIGS = ("/data/weights/", "/data/constants/")
_TEXT = (
    ".json",
    "/archive_format",
    "/archive_version",
    "/version",
    "/byteorder",
    "/serialization_id",
)
_LARGEST_TEXT = 256 << 20


def refuse_code(path: Path) -> None:
    """Raise FormatError if loading the file could run code that it contains."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if len(set(names)) != len(names):
                raise FormatError(str(path), "has two members of the same name and is rejected.")
            for info in archive.infolist():
                _check(path, archive, info)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(str(path), f"is not a file of torch.export: {error}.") from error


def _check(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> None:
    name = f"/{info.filename}"
    if "/aotinductor/" in name or "/executorch/" in name:
        raise FormatError(str(path), f"contains compiled code ({info.filename}) and is rejected.")
    if name.endswith(".json"):
        if any(part in name for part in _CONFIGS):
            _check_config(path, _json(path, archive, info))
    elif any(part in name for part in _CONFIGS):
        if not name.rpartition("/")[2].startswith(("weight_", "tensor_")):
            raise FormatError(str(path), f"contains an object ({info.filename}) and is rejected.")
    elif not name.endswith(_TEXT) and "/extra/" not in name:
        # Sample inputs, and everything in files of older versions of torch.
        try:
            torch.load(io.BytesIO(archive.read(info)), weights_only=True)
        except Exception as error:
            raise FormatError(
                str(path),
                f"has a pickle in {info.filename} that holds more than tensors, and is rejected: "
                "export the model again with tensors as example inputs.",
            ) from error


def _json(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Any:
    if info.file_size > _LARGEST_TEXT:
        raise FormatError(str(path), f"has a list of {info.file_size} bytes and is rejected.")
    try:
        return json.loads(archive.read(info))
    except (ValueError, RecursionError) as error:
        raise FormatError(str(path), f"{info.filename} is not JSON: {error}.") from error


def _check_config(path: Path, config: Any) -> None:
    entries = config.get("config") if isinstance(config, dict) else None
    if not isinstance(entries, dict):
        raise FormatError(str(path), "does not list its tensors.")
    for name, entry in entries.items():
        if not isinstance(entry, dict) or entry.get("use_pickle") is not False:
            raise FormatError(
                str(path), f"stores {name!r} as a pickle, which could run code, and is rejected."
            )
