"""A barrier of workers through a folder on HDFS, which scripts of Paddle 1.8 wait at."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from fleetx.checkpoint.hadoop_file_system import HadoopFSOf18
from fleetx.runtime import environment

_PAUSE_SECONDS = 1.0
# Missing workers that an error lists.
_SHOWN = 10


def check_all_trainers_ready(ready_path: str, epoch: int) -> None:
    """Put a file for this worker into a folder, and wait until those of all workers are there.

    HADOOP_HOME, FS_NAME and FS_UGI say where HDFS is. The folder is for this purpose alone. Raises
    TimeoutError after FLEETX_BARRIER_SECONDS, six hours by default.
    """
    home, name, account = environment.hadoop_settings()
    if not home:
        raise RuntimeError(
            "check_all_trainers_ready needs HDFS: set HADOOP_HOME to the folder with bin/hadoop, "
            "and FS_NAME and FS_UGI to its address and account."
        )
    client = HadoopFSOf18(home, {"fs.default.name": name, "hadoop.job.ugi": account})
    workers = environment.worker_num()
    if not client.is_dir(ready_path):
        client.makedirs(ready_path)
    with tempfile.TemporaryDirectory() as folder:
        mark = Path(folder, f"ready.{epoch}.{environment.worker_index()}.done")
        mark.touch()
        client.upload(f"{ready_path.rstrip('/')}/{mark.name}", str(mark), overwrite=True)
    seconds = environment.barrier_seconds()
    deadline = time.monotonic() + seconds
    while missing := _missing(client, ready_path, epoch, workers):
        if time.monotonic() >= deadline:
            raise TimeoutError(
                f"{len(missing)} of {workers} workers ({_listed(missing)}) left no mark for epoch "
                f"{epoch} in {ready_path!r} within {seconds} s; if they only need longer, set "
                "FLEETX_BARRIER_SECONDS."
            )
        time.sleep(min(_PAUSE_SECONDS, seconds))


def _missing(client: HadoopFSOf18, path: str, epoch: int, workers: int) -> list[int]:
    """Return the workers without a mark of this epoch; fast ones may have that of the next."""
    names = {entry.rsplit("/", 1)[-1] for entry in client.ls(path)}
    return [index for index in range(workers) if f"ready.{epoch}.{index}.done" not in names]


def _listed(workers: list[int]) -> str:
    shown = ", ".join(map(str, workers[:_SHOWN]))
    return shown if len(workers) <= _SHOWN else f"{shown}, …"
