"""Kills, freezes and cuts off workers and machines of an elastic job at random moments, and adds
others; it ends as if nobody had left.

make chaos, or with its PYTHONPATH: python tests/fleet/elastic_chaos.py 100 [seed] [program]

The machines are network namespaces. Where these are not allowed, all workers are on one machine,
and are killed and frozen only.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import elastic_worker
import namespaces
from elastic_results import require_like_one_process, status_of, used_samples
from elastic_worker import SAMPLES

import warm_start
from waiting import LIMIT, is_running, wait_until

WORKERS = 4
BATCH = 8
TIMEOUT = 3
SHORT, LONG = 0.5, 5.0
"""Seconds of a freeze or cut: less and more than the timeout of the job."""


class Chaos:
    """A job of four workers, and what happens to them."""

    def __init__(
        self,
        folder: Path,
        network: namespaces.Machines | None,
        events: int,
        seed: int,
        is_program: bool,
    ) -> None:
        self.folder = folder
        self._is_program = is_program
        self._network = network
        self._restarts = 3 * events + 10
        self._chance = random.Random(seed)
        self._pending: list[tuple[float, str, Callable[[], object]]] = []
        self._starts = 0
        self.done: Counter[str] = Counter()
        count = 1 if network is None else WORKERS
        self.launchers = [self._start(machine) for machine in range(count)]

    def _start(self, machine: int) -> subprocess.Popen[bytes]:
        """Start fleetrun on a machine."""
        self._starts += 1
        name = f"machine{machine}.{self._starts}"
        command = [sys.executable, "-m", "fleetx.launch", "--elastic"]
        command += [f"--elastic_timeout={TIMEOUT}", f"--max_restart={self._restarts}"]
        command += [f"--log_dir={self.folder / name}"]
        if self._network is None:
            command += [f"--nproc_per_node={WORKERS}"]
        else:
            hosts = self._network.addresses
            flags = [
                f"--nnodes=2:{WORKERS}",
                f"--master={hosts[0]}:6170",
                f"--host={hosts[machine]}",
            ]
            command = self._network.command(machine, [*command, *flags])
        loader = {"global_batch_size": BATCH}
        settings = {"until": [], "last": "last", "loader": loader, "program": self._is_program}
        command += [elastic_worker.__file__, str(self.folder), json.dumps(settings)]
        with open(self.folder / f"{name}.output", "wb") as output:
            return subprocess.Popen(
                command,
                env=warm_start.environment(OMP_NUM_THREADS="1"),
                cwd=self.folder,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def text(self) -> str:
        """Return the end of what the first launcher has printed."""
        return (self.folder / "machine0.1.output").read_text()[-4000:]

    def wait_for(self, steps: int, size: int) -> None:
        """Wait until so many steps are finished and so many workers train."""

        def reached() -> bool:
            self.heal()
            now = status_of(self.folder)
            return (now[1] >= steps and now[2] >= size) or self.launchers[0].poll() is not None

        wait_until(reached, f"step {steps} with {size} workers")
        assert self.launchers[0].poll() is None, self.text()

    def heal(self) -> None:
        """End freezes and cuts that have lasted long enough."""
        for entry in list(self._pending):
            if time.monotonic() >= entry[0]:
                self._pending.remove(entry)
                entry[2]()

    def strike(self) -> None:
        """Do something to a worker or machine, anywhere within a step."""
        time.sleep(self._chance.random() * 0.03)
        kinds = ["kill"] * 10 + ["freeze"] * 3
        kinds += [] if self._network is None else ["cut"] * 3 + ["replace"] * 2
        kind = self._chance.choice(kinds)
        if kind in ("kill", "freeze"):
            happened = self._strike_worker(kind)
        else:
            happened = self._strike_machine(kind, self._chance.randrange(1, WORKERS))
        self.done[kind] += happened

    def _strike_worker(self, kind: str) -> bool:
        worker = self._chance.randrange(WORKERS)
        path = self.folder / f"pid.{worker}"
        pid = int(path.read_text() or 0) if path.exists() else 0
        if not pid or not is_running(pid) or any(name == path.name for _, name, _ in self._pending):
            return False
        os.kill(pid, signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
        if kind == "freeze":
            self._later(
                path.name, lambda: os.kill(pid, signal.SIGCONT) if is_running(pid) else None
            )
        return True

    def _later(self, name: str, act: Callable[[], object]) -> None:
        end = time.monotonic() + self._chance.choice((SHORT, LONG))
        self._pending.append((end, name, act))

    def _strike_machine(self, kind: str, machine: int) -> bool:
        network, name = self._network, f"link {machine}"
        if network is None or any(entry[1] == name for entry in self._pending):
            return False
        if kind == "cut":
            network.pull_plug(machine)
            self._later(name, lambda: network.put_plug_back(machine))
            return True
        launcher = self.launchers[machine]
        children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
        for pid in (launcher.pid, *map(int, children)):
            os.kill(pid, signal.SIGKILL)
        launcher.wait()
        self.launchers[machine] = self._start(machine)
        return True

    def end(self) -> None:
        """End the training some epochs from now, and wait for the job."""
        wait_until(lambda: (self.heal(), not self._pending)[1], "the end of freezes and cuts")
        self.wait_for(status_of(self.folder)[1] + 1, WORKERS)
        part = self.folder / "last.part"
        part.write_text(str(status_of(self.folder)[0] + 20))
        part.rename(self.folder / "last")
        for launcher in self.launchers:
            assert launcher.wait(LIMIT) == 0, self.text()

    def stop(self) -> None:
        """End whatever is left."""
        for _, _, act in self._pending:
            act()
        for launcher in self.launchers:
            launcher.terminate()
            launcher.wait()


def run(folder: Path, events: int, seed: int, is_program: bool) -> str:
    """Train with so many events, check the result, and return what happened."""
    with _machines() as network:
        chaos = Chaos(folder, network, events, seed, is_program)
        try:
            while chaos.done.total() < events:
                # At least three train, so that two are left with the state.
                chaos.wait_for(status_of(folder)[1] + 3, WORKERS - 1)
                chaos.strike()
            chaos.end()
        finally:
            chaos.stop()
    # The learning rate of a program is a float32.
    results = require_like_one_process(folder, BATCH, within=1e-3 if is_program else 1e-9)
    sizes = results[0]["sizes"]
    # What a worker has not recorded, it has used in the last step before it was lost.
    used = used_samples(folder)
    missing = sum(SAMPLES - used[epoch].total() for epoch in range(results[0]["epochs"]))
    assert missing <= events * BATCH
    groups = 1 + sum(a != b for a, b in zip(sizes, sizes[1:], strict=False))
    what = ", ".join(f"{count} {kind}s" for kind, count in sorted(chaos.done.items()))
    return f"{what}; {len(sizes)} steps, {groups} changes of the group's size"


@contextlib.contextmanager
def _machines() -> Iterator[namespaces.Machines | None]:
    with contextlib.ExitStack() as stack:
        try:
            network = stack.enter_context(namespaces.machines(WORKERS, prefix="fxc"))
        except namespaces.NoNamespacesError as error:
            print(f"elastic: kills and freezes on one machine only, because {error}")
            yield None
        else:
            yield network


if __name__ == "__main__":
    count, seed = (int(sys.argv[i]) if len(sys.argv) > i else (100, 1)[i - 1] for i in (1, 2))
    is_program = sys.argv[3:] == ["program"]
    title = "elastic, a program" if is_program else "elastic"
    print(f"{title}: {count} events, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as place, warm_start.servers():
        print(f"{title}: {run(Path(place), count, seed, is_program)}")
