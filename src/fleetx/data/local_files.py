"""Look-up of a data set's local files, and of files in an archive; nothing is downloaded."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

DATA_HOME = Path("~/.cache/paddle/dataset")


def find_file(dataset: str, *names: str, data_dir: str | Path | None = None) -> Path:
    """Return the file of a data set, under the first of its usual names that exists.

    The default folder is `~/.cache/paddle/dataset/<dataset>`; `data_dir` may name the file itself.
    """
    folder = Path(data_dir) if data_dir is not None else DATA_HOME.expanduser() / dataset
    if folder.is_file():
        return folder
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(
        f"The data set {dataset!r} needs the file {' or '.join(names)}, which is not in {folder}; "
        "put it there, or pass the folder that holds it as data_dir."
    )


def files_in_tar(
    path: str | Path, wanted: Callable[[str], object]
) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the names and streams of the files in an archive whose names are `wanted`."""
    with tarfile.open(path) as tar:
        for member in tar:
            stream = tar.extractfile(member) if wanted(member.name) else None
            if stream is not None:
                yield member.name, stream


def file_in_tar(path: str | Path, name: str) -> bytes:
    """Return the content of one file in an archive."""
    for _, stream in files_in_tar(path, lambda member: member.removeprefix("./") == name):
        return stream.read()
    raise ValueError(f"{path} holds no file {name}.")
