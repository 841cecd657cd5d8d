"""Kills and freezes workers of an elastic job at random moments; it ends as if nobody had left.

make chaos, or with its PYTHONPATH: python tests/fleet/elastic_chaos.py 100 [seed]
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from elastic_results import require_like_one_process, status_of, used_samples
from elastic_worker import SAMPLES
from test_elastic import WORKER

import warm_start
from waiting import LIMIT, is_running, wait_until

WORKERS = 4
BATCH = 8


class Chaos:
    """A job of four workers, and what happens to them."""

    def __init__(self, folder: Path, events: int, seed: int) -> None:
        self.folder = folder
        self._chance = random.Random(seed)
        self._frozen: dict[int, tuple[int, float]] = {}
        settings = {"until": [], "last": "last", "loader": {"global_batch_size": BATCH}}
        command = [sys.executable, "-m", "fleetx.launch", "--elastic", "--elastic_timeout=3"]
        command += [f"--nproc_per_node={WORKERS}", f"--max_restart={3 * events + 10}"]
        command += [f"--log_dir={folder / 'log'}", str(WORKER), str(folder), json.dumps(settings)]
        with open(folder / "output", "wb") as output:
            self.process = subprocess.Popen(
                command,
                env=warm_start.environment(OMP_NUM_THREADS="1"),
                cwd=folder,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def status(self) -> tuple[int, int, int]:
        """Return the newest epoch, finished steps and group size of all workers."""
        return status_of(self.folder)

    def wait_for(self, steps: int, size: int) -> None:
        """Wait until so many steps are finished and so many workers train."""

        def reached() -> bool:
            self.wake()
            now = self.status()
            return (now[1] >= steps and now[2] >= size) or self.process.poll() is not None

        wait_until(reached, f"step {steps} with {size} workers")
        assert self.process.poll() is None, (self.folder / "output").read_text()[-4000:]

    def wake(self) -> None:
        """Let workers go on that were frozen for long enough."""
        for worker, (pid, until) in list(self._frozen.items()):
            if time.monotonic() >= until:
                del self._frozen[worker]
                if is_running(pid):
                    os.kill(pid, signal.SIGCONT)

    def strike(self) -> str:
        """Kill or freeze a worker; return what was done."""
        worker = self._chance.randrange(WORKERS)
        pid = int((self.folder / f"pid.{worker}").read_text())
        time.sleep(self._chance.random() * 0.03)  # anywhere within a step
        if worker in self._frozen or not is_running(pid):
            return "nothing"
        if self._chance.random() < 0.8:
            os.kill(pid, signal.SIGKILL)
            return f"kill of worker {worker}"
        seconds = self._chance.choice((0.5, 5.0))  # shorter and longer than --elastic_timeout
        os.kill(pid, signal.SIGSTOP)
        self._frozen[worker] = pid, time.monotonic() + seconds
        return f"freeze of worker {worker} for {seconds:g} s"

    def end(self) -> None:
        """End the training some epochs from now, and wait for the job."""
        wait_until(lambda: (self.wake(), not self._frozen)[1], "frozen workers")
        part = self.folder / "last.part"
        part.write_text(str(self.status()[0] + 300))
        part.rename(self.folder / "last")
        code = self.process.wait(LIMIT)
        assert code == 0, (self.folder / "output").read_text()[-4000:]


def run(folder: Path, events: int, seed: int) -> str:
    """Train with so many events, check the result, and return what happened."""
    chaos = Chaos(folder, events, seed)
    done = 0
    try:
        while done < events:
            # At least three train, so that two are left with the state.
            chaos.wait_for(chaos.status()[1] + 3, WORKERS - 1)
            what = chaos.strike()
            done += what != "nothing"
        chaos.end()
    finally:
        chaos.process.terminate()
        chaos.process.wait()
    results = require_like_one_process(folder, BATCH)
    sizes = results[0]["sizes"]
    used = used_samples(folder)
    missing = sum(SAMPLES - used[epoch].total() for epoch in range(results[0]["epochs"]))
    assert missing <= done * BATCH
    groups = 1 + sum(a != b for a, b in zip(sizes, sizes[1:], strict=False))
    return f"{done} events, {len(sizes)} steps, {groups} changes of the group"


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with tempfile.TemporaryDirectory() as place, warm_start.servers():
        print(run(Path(place), count, int(sys.argv[2]) if len(sys.argv) > 2 else 0))
