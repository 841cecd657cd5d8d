"""Kills and freezes servers and workers at random moments and compares the result bit for bit.

    PYTHONPATH=tests python tests/ps/chaos.py 100 [seed]

Trains with 2 servers and 2 workers in synchronous mode, once undisturbed and then with SIGKILLs at
so many moments, of one or two processes; every victim is started again at once. In between a
process is frozen (SIGSTOP) for a second, the last one for ten. Then asynchronous mode: an audit of
the servers' sequence numbers shows that no push was lost or applied twice. Then synchronous
training whose tables move between 2 and 3 servers, with kills during every move.
"""

from __future__ import annotations

import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import torch
from moves import MovingJob, move_with_kills
from processes import Process, servers
from training import IDS, result, sparse_spec, worker_process

from fleetx.ps.client.client import Client
from fleetx.ps.server.snapshots import Durability
from fleetx.ps.wire.messages import Kind
from waiting import wait_until

STEPS_PER_KILL = 8
KILLS_PER_FREEZE = 10
# Longer than a silence after which a peer is reported as missing.
LONGEST_FREEZE = 10.0


def wait_for(path: Path) -> None:
    """Wait until a process has created this file."""
    wait_until(path.exists, f"the file {path}: the training stands still")


def freeze(victim: Process, seconds: float) -> None:
    """Let a process stand still for a while."""
    victim.signal(signal.SIGSTOP)
    time.sleep(seconds)
    victim.signal(signal.SIGCONT)


def synchronous(folder: Path, steps: int, kills: int, seed: int) -> dict[str, torch.Tensor]:
    """Train with 2 servers, 2 workers and a number of kills; return the final values."""
    generator = random.Random(seed)
    folder.mkdir(parents=True)

    def durability(index: int) -> Durability:
        return Durability(folder=folder / f"server{index}", snapshot_bytes=20_000)

    log = str(folder / "log")
    with servers(2, log=log, workers=2, durability=durability) as (endpoints, server_processes):
        arguments = (2, steps, str(folder))
        workers = [Process(worker_process, endpoints, w, *arguments, log=log) for w in range(2)]
        try:
            for kill in range(kills):
                wait_for(folder / f"worker{generator.randrange(2)}-step{kill * STEPS_PER_KILL + 2}")
                time.sleep(generator.random() * 0.03)  # somewhere within a step
                # Sometimes two at once, which may be all servers or all workers.
                victims = generator.sample(
                    [*server_processes, *workers], generator.choice([1, 1, 2])
                )
                for victim in victims:
                    victim.kill()
                for victim in victims:
                    victim.start()
                if (kills - kill) % KILLS_PER_FREEZE == 1:
                    is_last = kill == kills - 1
                    freeze(
                        generator.choice([*server_processes, *workers]),
                        LONGEST_FREEZE if is_last else 1.0,
                    )
            codes = [process.end() for process in (*workers, *server_processes)]
        finally:
            for worker in workers:
                worker.kill()
    if codes != [0] * 4:
        raise RuntimeError(f"exit codes {codes}; see {log}:\n{Path(log).read_text()[-3000:]}")
    found = result(folder, 0)
    if not all(torch.equal(value, result(folder, 1)[name]) for name, value in found.items()):
        raise AssertionError("the two workers ended with different values")
    return found


def asynchronous(folder: Path, kills: int, seed: int) -> None:
    """Push while the server is killed; every push must count exactly once."""
    generator = random.Random(seed)
    durability = Durability(folder=folder, snapshot_bytes=20_000)
    ids, ones = torch.arange(IDS), torch.ones(IDS, 4, dtype=torch.float64)
    with servers(1, durability=durability) as (endpoints, processes):
        client = Client(endpoints)
        client.create(sparse_spec())
        expected = client.pull_sparse("rows", ids)
        pushes = 0
        for _ in range(kills):
            pending = []
            for _ in range(generator.randrange(5, 40)):
                pending.append(client.start_sparse(Kind.PUSH, "rows", ids, ones, rate=2.0**-10))
            pending[generator.randrange(len(pending))].wait()
            processes[0].kill()
            processes[0].start()
            for each in pending:
                each.wait()
            pushes += len(pending)
        for _ in range(pushes):
            expected -= 2.0**-10
        if client.status()[0]["applied"] != {"0": pushes + 1}:
            raise AssertionError(f"{client.status()} after {pushes} pushes")
        if not torch.equal(client.pull_sparse("rows", ids), expected):
            raise AssertionError("the rows are not what all pushes, once each, make of them")
        client.finish()
    print(f"async: {kills} kills, {pushes} pushes, each applied once")


def moving(folder: Path, moves: int, seed: int) -> None:
    """Move tables between 2 and 3 servers, with kills during every move; compare bit for bit."""
    plan = [(5 + 15 * number, 2 + (number + 1) % 2) for number in range(moves)]
    found, killed = [], 0
    for name, taken in (("quiet", []), ("moves", plan)):
        with MovingJob(folder / name, 2) as job:
            job.hold(*(step for step, _ in taken))
            job.train(15 * moves + 20, "sync", {"dense": "adam", "rows": "adagrad"})
            killed = move_with_kills(job, taken, random.Random(seed))
            codes = [process.end() for process in (*job.running, *job.servers[-1])]
            if any(codes):
                raise RuntimeError(f"exit codes {codes}:\n{job.text()}")
        found.append(result(folder / name, 0))
    for part, value in found[0].items():
        if not torch.equal(value, found[1][part]):
            raise AssertionError(f"{part} differs after {moves} moves (seed {seed})")
    print(f"moves: {moves}, with {killed} kills during them, equal bit for bit")


def main(kills: int, seed: int) -> None:
    """Run all tests and print the results."""
    print(f"chaos: {kills} kills, seed {seed}", flush=True)
    steps = STEPS_PER_KILL * kills + 10
    with tempfile.TemporaryDirectory() as name:
        undisturbed = synchronous(Path(name, "quiet"), steps, 0, seed)
        begun = time.monotonic()
        disturbed = synchronous(Path(name, "kills"), steps, kills, seed)
        for part, value in undisturbed.items():
            if not torch.equal(value, disturbed[part]):
                raise AssertionError(f"{part} differs after {kills} kills (seed {seed})")
        took = time.monotonic() - begun
        frozen = -(-kills // KILLS_PER_FREEZE)
        print(
            f"sync: {kills} kills and {frozen} freezes in {steps} steps, {took:.0f} s, equal bit "
            "for bit"
        )
        asynchronous(Path(name, "async"), max(1, kills // 4), seed)
        moving(Path(name, "moves"), max(1, kills // 10), seed)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100, int(sys.argv[2]) if sys.argv[2:] else 1)
