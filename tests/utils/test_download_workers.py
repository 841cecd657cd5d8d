"""Downloads of workers that train together, and of Hadoop's file system."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import warm_start
from fleetx import utils
from fleetx.data.remote_files import DownloadError, RemoteFolder
from fleetx.utils.hadoop import hadoop_options

ROOT = Path(__file__).resolve().parents[2]
# Both workers download; then one of them is given settings that do not exist.
SCRIPT = """
import json, sys
import fleetx as X
from fleetx import fleet

first = X.utils.is_first_worker()
fleet.init(is_collective=True)
assert first == X.utils.is_first_worker() == (fleet.worker_index() == 0)
downloader = X.utils.Downloader()
url, out = sys.argv[1:]
path = downloader.download_from_bos(fs_yaml=f"{url}/data.yaml", local_path="./data")
found = sorted(p.name for p in __import__("pathlib").Path(path).glob("train/*/*"))
shares = f"./share{fleet.worker_index()}"
downloader.download_from_bos(
    f"{url}/data.yaml", shares, shard_num=fleet.worker_num(), shard_id=fleet.worker_index()
)
try:
    X.utils.downloader.together(lambda: 1 / (1 - fleet.worker_index()))
except Exception as error:
    failure = f"{type(error).__name__}: {error}"
with open(f"{out}.{fleet.worker_index()}", "w") as file:
    json.dump({"found": found, "failure": failure}, file)
"""


@pytest.mark.slow
def test_workers_wait_for_each_other_and_fail_together(server, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "fleetx.launch", "--nproc_per_node", "2"]
    command += ["train.py", server.url, "out"]
    environment = warm_start.environment()
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    first, second = (json.loads((tmp_path / f"out.{rank}").read_text()) for rank in range(2))
    assert first["found"] == second["found"] == ["1.txt", "2.txt", "3.txt"]
    assert server.paths.count("/set/big.bin") == 2  # once for both, once for a share
    assert (tmp_path / "share0" / "big.bin").exists()
    assert (tmp_path / "share1" / "part" / "c.txt").exists()
    assert second["failure"] == "ZeroDivisionError: division by zero"
    assert first["failure"].startswith("RuntimeError: worker 1 failed to download its data")


def test_a_process_that_nobody_launched_is_the_first():
    assert utils.is_first_worker()


def test_hadoop_is_prepared_by_the_settings(tmp_path, monkeypatch):
    for name in ("JAVA_HOME", "HADOOP_HOME", "CLASSPATH"):
        monkeypatch.setenv(name, "")  # afterwards they are as before, unset ones too
    assert hadoop_options({"hadoop.job.ugi": "me,secret"}, "http://host/data") == {}
    settings = {"hadoop.job.ugi": "me,secret", "hadoop_home": tmp_path, "java_home": "/java"}
    with pytest.raises(FileNotFoundError, match="no bin/hadoop"):
        hadoop_options(settings, "hdfs://host:9000/data")
    command = tmp_path / "bin" / "hadoop"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\necho /jars/a.jar:$1:$2\n")
    command.chmod(stat.S_IRWXU)
    assert hadoop_options(settings, "hdfs://host:9000/data") == {"user": "me"}
    assert os.environ["CLASSPATH"] == "/jars/a.jar:classpath:--glob"
    assert os.environ["JAVA_HOME"] == "/java"
    command.write_text("#!/bin/sh\necho no java >&2; exit 1\n")
    with pytest.raises(RuntimeError, match="classpath --glob failed: no java"):
        hadoop_options(settings, "hdfs://host:9000/data")


def test_hdfs_that_cannot_be_reached_is_named():
    pytest.importorskip("pyarrow")
    with pytest.raises(DownloadError, match="hdfs://127.0.0.1:9/data cannot be reached"):
        RemoteFolder("hdfs://127.0.0.1:9/data")
