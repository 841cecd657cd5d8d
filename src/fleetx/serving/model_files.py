"""Look-up of a model's files; the format is determined by the file name.

The path may be a folder with a single model, the path passed to `save_inference_model`, or the file
itself.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from fleetx.checkpoint.file_errors import FormatError

PROGRAM = "__model__"
SUFFIXES = {".pdmodel": "paddle", ".pt2": "pt2", ".onnx": "onnx"}


def kind_of(path: Path) -> str | None:
    """Return "paddle", "pt2" or "onnx" for a file name; None for other files."""
    return "paddle" if path.name == PROGRAM else SUFFIXES.get(path.suffix)


def find_model(path: Path) -> Path:
    """Return the file with the program or graph of the given model."""
    if path.is_file():
        if kind_of(path) is None:
            raise FormatError(
                str(path), f"is not a model: serve a {PROGRAM}, {', '.join(SUFFIXES)} file."
            )
        return path
    for suffix in SUFFIXES:
        with_suffix = path.with_name(path.name + suffix)
        if with_suffix.is_file():
            return with_suffix
    found = _models_in(path) if path.is_dir() else []
    if not found:
        versions = path.is_dir() and any(each.name.isdigit() for each in path.iterdir())
        raise FileNotFoundError(
            f"there is no model in {str(path)!r}: pass a {PROGRAM}, {', '.join(SUFFIXES)} file, "
            "the path that was given to save_inference_model, or the folder that holds one"
            f"{' (fleetx serve --watch serves the newest of its versions)' if versions else ''}."
        )
    if len(found) > 1:
        names = ", ".join(each.name for each in found)
        raise FormatError(str(path), f"holds several models; pass one of {names}.")
    return found[0]


def _models_in(folder: Path) -> list[Path]:
    """Return the models of a folder; training programs count only if there is no other."""
    found = sorted(each for each in folder.iterdir() if each.is_file() and kind_of(each))
    for_training = [
        each
        for each in found
        if each.suffix == ".pdmodel" and each.with_suffix(".pdparams").exists()
    ]
    return [each for each in found if each not in for_training] or found


def checksum_of(files: Iterable[Path]) -> str:
    """Return the SHA-256 of the names and contents of files, independent of their order.

    Names are those below the folder that holds all of them: two tables have files of one name.
    """
    found = set(files)
    # A model without files has the checksum of no bytes.
    root = os.path.commonpath([path.parent for path in found]) if found else ""
    named = {path.relative_to(root).as_posix(): path for path in found}
    total = hashlib.sha256()
    for name, path in sorted(named.items()):
        with path.open("rb") as stream:
            one = hashlib.file_digest(stream, "sha256")
        total.update(f"{name}\0{one.hexdigest()}\n".encode())
    return total.hexdigest()
