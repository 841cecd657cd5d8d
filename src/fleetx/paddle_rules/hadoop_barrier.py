"""A barrier of workers through a folder on HDFS, which scripts of Paddle 1.8 wait at."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from fleetx.checkpoint.hadoop_file_system import HadoopFSOf18
from fleetx.runtime import environment

_PAUSE_SECONDS = 1.0


def check_all_trainers_ready(ready_path: str, epoch: int) -> None:
    """Put a file for this worker into a folder, and wait until those of all workers are there.

    HADOOP_HOME, FS_NAME and FS_UGI say where HDFS is. The folder is for this purpose alone.
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
    # Marks of this epoch only: a fast worker may have left those of the next one.
    while _ready(client, ready_path, epoch) < workers:
        time.sleep(_PAUSE_SECONDS)


def _ready(client: HadoopFSOf18, path: str, epoch: int) -> int:
    names = (entry.rsplit("/", 1)[-1] for entry in client.ls(path))
    return sum(name.startswith(f"ready.{epoch}.") for name in names)
