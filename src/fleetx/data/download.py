"""Download of a data set: a remote folder with filelist.txt, meta.txt and the listed files.

filelist.txt has lines "file md5". Several machines may each download a shard; files are fetched by
parallel threads, tars are unpacked. A marker per finished file in `.downloaded/` lets a later call,
or another process on the machine, resume.
"""

from __future__ import annotations

import contextlib
import fcntl
import re
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from fleetx.checkpoint.atomic import inside, write_bytes
from fleetx.data.remote_files import Advance, RemoteFolder, file_md5
from fleetx.data.unpack import is_tar, unpack

_NOTES = ".downloaded"


class Listed(NamedTuple):
    """A line of filelist.txt."""

    name: str
    md5: str


def download(
    source: RemoteFolder,
    local_path: str | Path,
    *,
    shard_num: int = -1,
    shard_id: int = -1,
    process_num: int = 10,
    console: Console | None = None,
) -> Path:
    """Download a data set, or shard `shard_id` of `shard_num`, and return its folder.

    Other processes that download to the same folder wait, and then find all files.
    """
    if process_num < 1:
        raise ValueError(f"process_num must be at least 1, not {process_num}.")
    folder = Path(local_path)
    folder.mkdir(parents=True, exist_ok=True)
    with _alone_in(folder):
        listed = choose_share(read_list(source), shard_num, shard_id)
        write_bytes(folder / "meta.txt", source.read("meta.txt"))
        missing = [file for file in listed if not _is_done(folder, file)]
        if missing:
            _fetch_all(source, folder, missing, process_num, console or Console(stderr=True))
    return folder


def read_list(source: RemoteFolder) -> list[Listed]:
    """Return the files of a remote folder, as listed in its filelist.txt."""
    where = f"{source.url}/filelist.txt"
    seen: dict[str, int] = {}
    listed = []
    for number, line in enumerate(source.read("filelist.txt").decode().splitlines(), 1):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != 2 or not re.fullmatch("[0-9a-fA-F]{32}", fields[1]):
            raise ValueError(f"{where}, line {number}: expected 'file md5', not {line!r}.")
        name, md5 = fields
        if name in seen:
            raise ValueError(f"{where}, line {number}: {name} is already on line {seen[name]}.")
        try:
            inside(".", name)
        except ValueError as error:
            raise ValueError(f"{where}, line {number}: {name} is not inside the folder.") from error
        seen[name] = number
        listed.append(Listed(name, md5.lower()))
    if not listed:
        raise ValueError(f"{where} lists no files.")
    return listed


def choose_share(listed: list[Listed], shard_num: int, shard_id: int) -> list[Listed]:
    """Return every `shard_num`-th file from `shard_id`; all files if both are -1."""
    if shard_num == shard_id == -1:
        return listed
    if not 0 <= shard_id < shard_num:
        raise ValueError(
            f"shard_id={shard_id} is out of range for shard_num={shard_num}: shards are numbered "
            "from 0, and -1 for both means everything."
        )
    return listed[shard_id::shard_num]


def _fetch_all(
    source: RemoteFolder, folder: Path, files: list[Listed], threads: int, console: Console
) -> None:
    pool = ThreadPoolExecutor(min(threads, len(files)), thread_name_prefix="fleetx-download")
    try:
        sizes = list(pool.map(lambda file: source.size(file.name), files))
        with _progress(console, sum(size or 0 for size in sizes), len(files)) as advance:
            running = [pool.submit(_fetch, source, folder, file, advance) for file in files]
            wait(running, return_when=FIRST_EXCEPTION)
            for future in running:
                if future.done():
                    future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _fetch(source: RemoteFolder, folder: Path, file: Listed, advance: Advance) -> None:
    target = inside(folder, file.name)
    if not (target.is_file() and file_md5(target) == file.md5):
        source.fetch(file.name, target, file.md5, advance=advance)
    if is_tar(file.name):
        unpack(target, folder)
    write_bytes(_note(folder, file), file.md5.encode())
    if is_tar(file.name):
        target.unlink()


def _is_done(folder: Path, file: Listed) -> bool:
    """Return whether a file is complete: by its marker and, unless it was a tar, by its md5."""
    note = _note(folder, file)
    if not note.is_file() or note.read_text() != file.md5:
        return False
    target = inside(folder, file.name)
    return is_tar(file.name) or (target.is_file() and file_md5(target) == file.md5)


def _note(folder: Path, file: Listed) -> Path:
    return inside(folder / _NOTES, file.name)


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    notes = folder / _NOTES
    notes.mkdir(exist_ok=True)
    with open(notes / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _progress(console: Console, total: int, files: int) -> Iterator[Advance]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"downloading {files} files", total=total or None)
        yield lambda count: progress.advance(task, count)
    if not console.is_terminal:
        console.print(f"downloaded {files} files, {total:,} bytes", highlight=False)
