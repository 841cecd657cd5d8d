"""Elastic jobs on several machines: launchers are killed, cut off and added while a job trains."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import elastic_worker
import namespaces
import pytest
from elastic_results import require_like_one_process, status_of
from launching import Launch

import warm_start
from ports import consecutive_ports
from waiting import wait_until

pytestmark = pytest.mark.slow


class Cluster:
    """Launchers of one job, each with the logs of its machine in a folder of its own."""

    def __init__(self, folder: Path, *flags: str, **settings: Any) -> None:
        self.folder = folder
        (folder / "secret").write_text("of this job only, 32 bytes long.")
        self._flags = [f"--job_secret={folder / 'secret'}", *flags]
        self._settings = {"until": [], "last": "last", "loader": {"global_batch_size": 6}}
        self._settings |= settings
        self.launches: list[Launch] = []

    def start(self, host: str, *more: str, prefix: list[str] | None = None) -> Launch:
        name = f"machine{len(self.launches)}"
        command = [*(prefix or []), sys.executable, "-m", "fleetx.launch", "--elastic"]
        command += [f"--host={host}", f"--log_dir={self.folder / name}", *self._flags, *more]
        command += [elastic_worker.__file__, str(self.folder), json.dumps(self._settings)]
        environment = warm_start.environment(OMP_NUM_THREADS="1")
        self.launches.append(Launch(command, self.folder, environment, name))
        return self.launches[-1]

    def text(self) -> str:
        logs = sorted(self.folder.glob("machine*/workerlog.*"))
        return "\n".join(
            [launch.stderr for launch in self.launches] + [p.read_text() for p in logs]
        )

    def wait_for(self, size: int) -> None:
        """Wait for a step from now on with so many workers."""
        before = status_of(self.folder)[1]

        def reached() -> bool:
            _, steps, now = status_of(self.folder)
            return steps > before + 1 and now == size

        self.wait(reached, f"a step with {size} workers")

    def wait(self, condition: Any, what: str) -> None:
        wait_until(lambda: condition() or self.launches[0].process.poll() is not None, what)
        assert self.launches[0].process.poll() is None, self.text()

    def finish(self, *left: Launch) -> dict[str, Any]:
        """End the training, and check the results of the machines that are left."""
        for number in range(3):  # those of machines that have gone would count as results
            (self.folder / f"result.{number}").unlink(missing_ok=True)
        part = self.folder / "last.part"
        part.write_text(str(status_of(self.folder)[0] + 2))
        part.rename(self.folder / "last")
        assert [launch.end() for launch in left] == [0] * len(left), self.text()
        results = require_like_one_process(self.folder, 6)
        assert len(results) == len(left)
        return results[0]

    def close(self) -> None:
        for launch in self.launches:
            launch.kill_whatever_is_left()


@contextlib.contextmanager
def cluster(folder: Path, address: str, *flags: str) -> Iterator[Cluster]:
    job = Cluster(folder, f"--master={address}", *flags)
    try:
        yield job
    finally:
        job.close()


def kill(launch: Launch) -> None:
    """Kill the launcher's processes, which takes its workers with them."""
    children = Path(f"/proc/{launch.pid}/task/{launch.pid}/children").read_text().split()
    for pid in [launch.pid, *map(int, children)]:
        os.kill(pid, signal.SIGKILL)
    launch.process.wait()


def test_machines_come_and_go(tmp_path):
    address = f"127.0.0.1:{consecutive_ports(1, ['127.0.0.1'])}"
    with cluster(tmp_path, address, "--nnodes=2:3", "--rdzv_timeout=120") as job:
        first = job.start("127.0.0.1")
        wait_until(lambda: "Training waits" in job.text(), "the wait for the least number")
        second = job.start("127.0.0.2")
        job.wait_for(2)
        third = job.start("127.0.0.3")
        job.wait_for(3)
        spare = job.start("127.0.0.4")  # waits for a place
        job.wait(lambda: "for one of 3 machines to leave" in spare.stderr, "the spare machine")
        kill(third)
        job.wait(lambda: "Machine 127.0.0.3 was lost" in first.stderr, "the loss")
        job.wait_for(3)  # the spare machine has taken its place
        spare.process.send_signal(signal.SIGTERM)  # this machine leaves, the job goes on
        assert spare.end() == 128 + signal.SIGTERM
        job.wait_for(2)
        waits = first.stderr.count("Training waits")
        kill(second)
        job.wait(lambda: first.stderr.count("Training waits") > waits, "too few machines")
        steps = status_of(tmp_path)[1]
        stranger = tmp_path / "other"
        stranger.write_text("the secret of another job, 32 b.")
        refused = job.start("127.0.0.5", f"--job_secret={stranger}", "--rdzv_timeout=3")
        assert refused.end() == 1
        assert "another --job_secret" in refused.stderr
        assert status_of(tmp_path)[1] == steps  # nobody trains meanwhile
        another = job.start("127.0.0.6")
        job.wait_for(2)
        result = job.finish(first, another)
    assert {1} & set(result["sizes"]) == set()
    assert "restart" not in (tmp_path / "machine0" / "workerlog.0").read_text()


def test_machine_that_is_cut_off_joins_again(tmp_path):
    try:
        network = namespaces.machines(3, prefix="fxe")
        group = network.__enter__()
    except namespaces.NoNamespacesError as error:
        pytest.skip(f"machines that can be cut off: {error}")
    with contextlib.ExitStack() as stack:
        stack.push(network)
        flags = ("--nnodes=2:3", "--elastic_timeout=4")
        job = stack.enter_context(cluster(tmp_path, f"{group.addresses[0]}:6170", *flags))
        launches = [
            job.start(host, prefix=group.command(index, []))
            for index, host in enumerate(group.addresses)
        ]
        job.wait_for(3)
        group.pull_plug(2)
        job.wait_for(2)
        job.wait(lambda: "The first machine" in launches[2].stderr, "the machine that is cut off")
        group.put_plug_back(2)
        job.wait_for(3)
        job.finish(*launches)
        assert "This machine rejoins the job" in launches[2].stderr
    assert "was lost" not in launches[1].stderr
