"""Settings of automatic checkpoints, from the variables of Paddle's cloud."""

from __future__ import annotations

import os
from dataclasses import dataclass

SWITCH = "PADDLE_EDL_AUTO_CHECKPOINT"


@dataclass(frozen=True)
class AutoCheckpoint:
    """The settings of checkpoints of epochs."""

    folder: str
    """Where checkpoints of this job are."""
    seconds: float
    """The minimum time between two checkpoints."""
    cache: str
    """Where files are put together before they are uploaded."""
    hadoop_home: str
    """The folder of Hadoop; '' if `folder` is on this machine or on a shared disk."""
    hadoop_configs: dict[str, str]


def settings() -> AutoCheckpoint | None:
    """Return the settings of this process; None if `PADDLE_RUNNING_ENV` does not ask for them."""
    if os.environ.get("PADDLE_RUNNING_ENV") != SWITCH:
        return None
    job, folder = os.environ.get("PADDLE_JOB_ID"), os.environ.get("PADDLE_EDL_HDFS_CHECKPOINT_PATH")
    if not job or not folder:
        raise ValueError(
            f"PADDLE_RUNNING_ENV={SWITCH} needs PADDLE_JOB_ID and PADDLE_EDL_HDFS_CHECKPOINT_PATH, "
            "the folder of checkpoints."
        )
    text = os.environ.get("PADDLE_EDL_SAVE_CHECKPOINT_INTER", "900")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if seconds < 0:
        raise ValueError(
            f"PADDLE_EDL_SAVE_CHECKPOINT_INTER={text!r} must be a number of seconds, 0 or more."
        )
    name = os.environ.get("PADDLE_EDL_HDFS_NAME", "")
    configs = {"fs.default.name": name, "hadoop.job.ugi": os.environ.get("PADDLE_EDL_HDFS_UGI", "")}
    return AutoCheckpoint(
        folder=f"{folder}/{job}",
        seconds=seconds,
        cache=os.environ.get("PADDLE_EDL_FS_CACHE", ".cache"),
        hadoop_home=os.environ.get("PADDLE_EDL_HDFS_HOME", "") if name else "",
        hadoop_configs=configs if name else {},
    )
