"""Unpacking of untrusted tars: nothing is written outside the folder.

Files are unpacked to a temporary folder and moved when the whole tar has been read, so that a
damaged or malicious one leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tarfile
import tempfile
from pathlib import Path

_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")


def is_tar(name: str) -> bool:
    """Return whether a file is a tar, judging by its name."""
    return name.endswith(_SUFFIXES)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar to a folder; files of the same names are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpack-", dir=folder) as temporary:
        try:
            with tarfile.open(archive) as tar:
                tar.extractall(temporary, filter="data")
        except (tarfile.TarError, EOFError, OSError) as error:
            raise ValueError(
                f"{archive.name} cannot be unpacked; nothing was written: {error}"
            ) from error
        _merge(Path(temporary), folder)


def _merge(source: Path, target: Path) -> None:
    """Move files to their destination, merging folders, which several tars may fill."""
    for entry in source.iterdir():
        place = target / entry.name
        if entry.is_dir() and not entry.is_symlink():
            _make_folder(place)
            _merge(entry, place)
            continue
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        os.replace(entry, place)


def _make_folder(place: Path) -> None:
    """Create a folder, replacing a file of that name; other processes may do the same."""
    while not place.is_dir():
        try:
            place.mkdir()
        except FileExistsError:
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                place.unlink()
