"""Jobs whose tables move between servers, for tests: what a launcher does, without one."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from processes import Process
from training import IDS, begin_step, first_values, make_mode, sparse_spec, worker_process

from fleetx.ps.client.client import Client, ClientSettings
from fleetx.ps.modes.relocation import LOOK_EVERY
from fleetx.ps.server.server import ServerSettings, run_server
from fleetx.ps.server.snapshots import Durability
from fleetx.ps.tables.sparse_table import SparseTable
from fleetx.runtime.layout_folder import LayoutFolder, ServerLayout
from ports import free_endpoints
from waiting import wait_until


def counting_worker(
    endpoints: list[str], worker: int, workers: int, steps: int, folder: str, mode: str, files: str
) -> None:
    """Push ones to the same rows in every step, meet the others, and count what has arrived."""
    settings = ClientSettings(layout=files)
    client = Client(endpoints, worker=worker, workers=workers, settings=settings)
    given = {"k_steps": 3} if mode == "geo" else {}
    trained = make_mode(mode, client, client.cut, **given)
    ids, ones = torch.arange(IDS), torch.ones(IDS, 4, dtype=torch.float64)
    trained.start(first_values())
    first = SparseTable(sparse_spec()).pull(ids)
    for step in range(steps):
        # A worker that is ahead may be held before a later step than the one that announces a move.
        begin_step(Path(folder), worker, step, lambda: client.is_moving)
        trained.push_sparse("rows", ids, ones, rate=2.0**-10)
        trained.step_end()
    trained.settle()
    client.barrier()
    arrived = (first - client.pull_sparse("rows", ids)) * 2**10
    Path(folder, f"counted{worker}").write_text(f"{arrived.min()} {arrived.max()}")
    client.barrier()
    trained.stop()


def release(folder: Path, step: int) -> None:
    """Let workers begin a step that they wait for, at the end of which worker 0 looks for a plan:
    it does so at most once in a while, and short steps could end before."""
    reached = folder / f"worker0-step{step}"
    wait_until(lambda: time.time() - reached.stat().st_mtime > 2 * LOOK_EVERY, "the next look")
    (folder / f"hold{step}").unlink()


def move_with_kills(job: MovingJob, moves: list[tuple[int, int]], draw: random.Random) -> int:
    """Move to other servers at steps that the job holds, killing processes of all roles meanwhile;
    return the number of kills."""
    kills = 0
    for number, (step, servers) in enumerate(moves):
        job.wait_for_step(step)
        job.plan(servers)
        job.release(step)
        groups = [job.running, job.servers[number], job.servers[number + 1]]
        while job.generation <= number:
            victim = draw.choice(draw.choice(groups))
            threading.Event().wait(draw.random() * 0.3)  # somewhere within the move
            # Old servers end by themselves when the last worker has left them.
            if job.generation <= number:
                victim.kill()
                victim.start()
                kills += 1
    return kills


class MovingJob:
    """Servers and workers in processes of their own, in one folder."""

    def __init__(self, folder: Path, servers: int, workers: int = 2, **settings: Any) -> None:
        folder.mkdir(parents=True)
        self.folder, self.workers, self.cut = folder, workers, servers
        self._settings = settings
        self.files = LayoutFolder(folder / "state")
        self.log = str(folder / "log")
        self.servers: list[list[Process]] = []
        self.running: list[Process] = []
        layout = ServerLayout(0, tuple(free_endpoints(servers)), servers, workers)
        self.files.write(layout)
        self._start_servers(layout)

    def _start_servers(self, layout: ServerLayout) -> None:
        number, count = layout.generation, len(layout.endpoints)
        started = []
        for index, endpoint in enumerate(layout.endpoints):
            settings = ServerSettings(
                index=index,
                servers=count,
                workers=self.workers,
                allow_insecure=True,
                take_over=str(self.files.handover(number)) if number else None,
                durability=Durability(
                    folder=self.files.state_of(number, index), snapshot_bytes=20_000
                ),
                **self._settings,
            )
            started.append(Process(run_server, endpoint, settings, log=self.log))
        self.servers.append(started)

    def train(self, steps: int, mode: str = "sync", settings: dict[str, Any] | None = None) -> None:
        """Start workers that train."""
        files = {"layout": str(self.files.path)}
        self._start_workers(worker_process, steps, str(self.folder), mode, settings, files)

    def count(self, steps: int, mode: str) -> None:
        """Start workers that push ones, and write how many have arrived."""
        files = str(self.files.path)
        self._start_workers(counting_worker, steps, str(self.folder), mode, files)

    def _start_workers(self, target: Callable[..., None], *arguments: Any) -> None:
        found = self.files.read()
        assert found is not None
        for worker in range(self.workers):
            given = (list(found.endpoints), worker, self.workers, *arguments)
            self.running.append(Process(target, *given, log=self.log))

    def plan(self, servers: int) -> None:
        """Start other servers, and let the tables move to them."""
        now = self.files.read()
        assert now is not None
        endpoints = tuple(free_endpoints(servers))
        plan = ServerLayout(now.generation + 1, endpoints, self.cut, self.workers)
        self.files.write_plan(plan)
        self._start_servers(plan)

    def wait_for_generation(self, number: int) -> None:
        """Wait until tables have moved."""
        wait_until(lambda: self.generation >= number, f"layout {number}")

    @property
    def generation(self) -> int:
        """How often tables have moved."""
        found = self.files.read()
        assert found is not None
        return found.generation

    def hold(self, *steps: int) -> None:
        """Let workers wait before these steps, until each is released."""
        for step in steps:
            (self.folder / f"hold{step}").touch()

    def release(self, step: int) -> None:
        """Let workers begin a step, at the end of which they look for a plan."""
        release(self.folder, step)

    def wait_for_step(self, step: int, worker: int = 0) -> None:
        """Wait until a worker begins a step."""
        wait_until((self.folder / f"worker{worker}-step{step}").exists, f"step {step}")

    def end(self) -> list[int | None]:
        """Return the exit codes of workers and all servers."""
        processes = [*self.running, *(server for each in self.servers for server in each)]
        return [process.end() for process in processes]

    def close(self) -> None:
        """Kill what is left."""
        for process in [*self.running, *(server for each in self.servers for server in each)]:
            process.kill()

    def __enter__(self) -> MovingJob:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def text(self) -> str:
        """Return the end of the log."""
        return Path(self.log).read_text()[-3000:]
