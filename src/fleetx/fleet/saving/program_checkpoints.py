"""Numbered checkpoints of programs, as Paddle's collective fleet of 1.8 lays them out.

`<path>/__paddle_fleet_checkpoint__.<n>/` holds all persistable variables in one file and the last
finished epoch as JSON. A checkpoint is written under a temporary name and renamed when it is
complete.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from fleetx.checkpoint.file_system import FS, LocalFS
from fleetx.static import io
from fleetx.static.graph.program import Program

PREFIX = "__paddle_fleet_checkpoint__"
_PARAMETERS = "_paddle_fleet_param__"
_STATUS = "fleet_train_status"


def save(
    executor: Any,
    path: str,
    epoch: int,
    program: Program,
    *,
    fs: FS | None = None,
    cache: str = ".cache",
    keep_all: bool = True,
) -> int:
    """Write a checkpoint after an epoch, numbered one above the last; return its number.

    Args:
        executor: the executor that has the values.
        path: the folder of checkpoints, in the file system `fs`.
        epoch: the epoch that is finished.
        program: the program whose persistable variables are written.
        fs: the file system; this machine's by default.
        cache: where files are put together that have to be uploaded.
        keep_all: False drops all older checkpoints.
    """
    fs = fs or LocalFS()
    fs.mkdirs(path)
    number = max(_numbers(path, fs), default=-1) + 1
    final = f"{path}/{PREFIX}.{number}"
    temporary = f"{final}.tmp"
    fs.delete(temporary)
    local = f"{cache}/{PREFIX}.{number}.saved_cache" if fs.need_upload_download() else temporary
    io.save_persistables(executor, local, program, _PARAMETERS)
    (Path(local) / _STATUS).write_text(json.dumps({"epoch_no": epoch}))
    if fs.need_upload_download():
        fs.upload(local, temporary)
        shutil.rmtree(local)
    fs.mv(temporary, final)
    if not keep_all:
        clean(path, fs=fs)
    return number


def load(
    executor: Any,
    path: str,
    program: Program,
    *,
    fs: FS | None = None,
    cache: str = ".cache",
    worker: int = 0,
) -> int | None:
    """Read the last checkpoint into a program's variables; return its epoch, None if none is there.

    `worker` tells the copies apart that workers of one machine download.
    """
    folder = _local_copy(path, fs or LocalFS(), cache, worker)
    if folder is None:
        return None
    io.load_persistables(executor, folder, program, _PARAMETERS)
    return _epoch_of(folder)


def last_epoch(
    path: str, *, fs: FS | None = None, cache: str = ".cache", worker: int = 0
) -> int | None:
    """Return the epoch of the last checkpoint, None if none is there."""
    folder = _local_copy(path, fs or LocalFS(), cache, worker)
    return None if folder is None else _epoch_of(folder)


def _local_copy(path: str, fs: FS, cache: str, worker: int) -> str | None:
    numbers = _numbers(path, fs)
    if not numbers:
        return None
    folder = f"{path}/{PREFIX}.{max(numbers)}"
    if not fs.need_upload_download():
        return folder
    local = f"{cache}/{PREFIX}.{max(numbers)}.load_cache.{worker}"
    shutil.rmtree(local, ignore_errors=True)
    os.makedirs(cache, exist_ok=True)
    fs.download(folder, local)
    return local


def _epoch_of(folder: str) -> int:
    status = Path(folder) / _STATUS
    if not status.is_file():
        return -1
    epoch = json.loads(status.read_text()).get("epoch_no", -1)
    if not isinstance(epoch, int) or epoch < 0:
        raise ValueError(f"{status} does not say which epoch was finished.")
    return epoch


def clean(path: str, *, fs: FS | None = None, keep: int = 1) -> None:
    """Remove all checkpoints but the last `keep`, at least one."""
    fs = fs or LocalFS()
    for number in _numbers(path, fs)[: -max(1, keep)]:
        fs.delete(f"{path}/{PREFIX}.{number}")


def _numbers(path: str, fs: FS) -> list[int]:
    """Return the numbers of the checkpoints in a folder, in order."""
    parts = (name.split(".") for name in fs.list_dirs(path))
    return sorted(int(p[1]) for p in parts if len(p) == 2 and p[0] == PREFIX and p[1].isdecimal())
