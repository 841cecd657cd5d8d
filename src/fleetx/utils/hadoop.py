"""Settings of Hadoop's client library, which must be set before it is loaded."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any


def hadoop_options(settings: dict[str, Any], address: str) -> dict[str, Any]:
    """Return fsspec's options for a URL; for hdfs:// also prepare this process.

    Args:
        settings: the keys hadoop.job.ugi, hadoop_home and java_home.
        address: the URL to read.
    """
    if not address.startswith(("hdfs://", "webhdfs://")):
        return {}
    if address.startswith("hdfs://"):
        _prepare(settings)
    user = str(settings.get("hadoop.job.ugi") or "").partition(",")[0]
    return {"user": user} if user else {}


def _prepare(settings: dict[str, Any]) -> None:
    """Set the paths of Hadoop and Java; libhdfs finds them only in the environment."""
    environment = os.environ  # noqa: TID251 - written for libhdfs, not read
    if settings.get("java_home"):
        environment["JAVA_HOME"] = str(settings["java_home"])
    if not settings.get("hadoop_home"):
        return
    home = Path(settings["hadoop_home"])
    command = home / "bin" / "hadoop"
    if not command.is_file():
        raise FileNotFoundError(f"hadoop_home is {home}, but there is no bin/hadoop in it.")
    environment["HADOOP_HOME"] = str(home)
    found = subprocess.run([command, "classpath", "--glob"], capture_output=True, text=True)
    if found.returncode != 0:
        raise RuntimeError(
            f"{command} classpath --glob failed: {found.stderr.strip() or found.stdout.strip()}"
        )
    environment["CLASSPATH"] = found.stdout.strip()
