"""Look-up of a data set's local files, and of files in an archive; nothing is downloaded."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import IO, Any

from fleetx.data.remote_files import file_md5

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


def local_download(
    url: str, folder: Path, md5sum: str | None = None, *, unpacked: bool = False
) -> Path:
    """Return the file of an address in a folder, checked if a sum is given.

    With `unpacked`, the folder that an archive was unpacked to, beside it, takes precedence.
    """
    name = url.rstrip("/").rsplit("/", 1)[-1]
    path, content = folder / name, folder / name.split(".tar")[0].removesuffix(".zip")
    if unpacked and content != path and content.is_dir():
        return content
    if not path.is_file():
        raise FileNotFoundError(
            f"{url} is not downloaded automatically: put the file {name} into {folder}."
        )
    if md5sum is not None and file_md5(path) != md5sum:
        raise ValueError(f"{path} is damaged or a different file: its MD5 sum is not {md5sum}.")
    return path


def files_in_tar(
    path: str | Path, wanted: Callable[[str], object]
) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the names and streams of the files in an archive whose names are `wanted`."""
    with tarfile.open(path) as tar:
        for member in tar:
            stream = tar.extractfile(member) if wanted(member.name) else None
            if stream is not None:
                yield member.name, stream


def endless(reader: Callable[[], Iterator[Any]]) -> Callable[[], Iterator[Any]]:
    """Return a reader that reads its data again and again."""
    return lambda: chain.from_iterable(one_pass() for one_pass in repeat(reader))


def file_in_tar(path: str | Path, name: str) -> bytes:
    """Return the content of one file in an archive."""
    for _, stream in files_in_tar(path, lambda member: member.removeprefix("./") == name):
        return stream.read()
    raise ValueError(f"{path} holds no file {name}.")
