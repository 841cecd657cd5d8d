"""Parameter servers against those of real Paddles, training in one process, and Gloo.

    python bench/parameter_server.py [--rounds 5] [--steps 150]
        [--only async,sync,geo,local,link,dense,recovery]

1. A CTR model (26 slots, a million ids, rows of 16, batch 512, SGD) with 2 servers and 2 workers:
   the same scripts run on FleetX and on Paddle 1.8.5 and 2.6.2, if PADDLE185 and PADDLE262 name a
   Python that has them; in addition the model as a PyTorch module.
2. The same with 1 server and 1 worker, asynchronous, with and without rows fetched during the step
   before, against one process with a local nn.EmbeddingBag(sparse=True).
3. The same over a link of 500 Mbit/s, between network namespaces (needs root): with pushes in the
   background and rows fetched during the step before, against a job whose steps wait for both; and
   geo training during an exchange of deltas, against waiting for it.
4. 100 MB of dense gradients, two workers: a synchronous step against Gloo's all-reduce.
5. The interruption of a job when a server with a million rows is killed and restarted.

All processes share this machine; jobs are interleaved, and those of 1. restarted for each round.
Figures go to bench/results/parameter_server.json; those of parts that were not run are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import torch
from contest import HERE, OURS, Contestant, contest, free_ports, ratio
from groups import GroupContestant
from namespaces import machines
from record import RESULTS, write_record
from server_jobs import BATCH, ServerContestant
from static_graph import figures, show

from fleetx.ps.client.client import Client
from fleetx.ps.tables.table_spec import SparseTableSpec

PARTS = ("async", "sync", "geo", "local", "link", "dense", "recovery")
MBIT = 500
# The peer, the mode, and the speed ratio to reach.
GOALS = (
    ("async", "2.6.2", 2.0),
    ("async", "1.8.5", 2.0),
    ("sync", "1.8.5", 2.0),
    ("geo", "1.8.5", 1.5),
)


def real_paddle(version: str, mode: str) -> ServerContestant | None:
    """Return the job of a real Paddle, if its Python is known."""
    number = version.replace(".", "")
    python = os.environ.get(f"PADDLE{number}")
    if not python:
        return None
    script = f"ps_paddle{number}.py"
    return ServerContestant(f"Paddle {version}", script, python, (mode,), ours=False)


def ctr(mode: str, steps: int, rounds: int) -> list[dict[str, Any]]:
    """Return samples per second of one mode, against every Paddle with a goal."""
    goals = {version: goal for kind, version, goal in GOALS if kind == mode}
    peers = {version: real_paddle(version, mode) for version in goals}
    eager = ServerContestant("fleetx, module", "ps_eager.py", arguments=(mode,))
    pairs = [
        (version, peer, _program(version, mode))
        for version, peer in peers.items()
        if peer is not None
    ]
    programs = [program for _, _, program in pairs] or [_program("2.6.2", mode)]
    everyone = [eager, *programs, *(peer for _, peer, _ in pairs)]
    # One job at a time: those of Paddle use CPU time even when idle.
    for _ in range(rounds):
        for each in everyone:
            contest([each], steps=steps, rounds=1)
    for each in everyone:
        cpu = statistics.median(each.seconds_of_cpu)
        print(f"{mode}, {each.name}: {each.rate:.0f} samples/s, {cpu:.4f} CPU s per 1000")
    lines = []
    for version, peer, program in pairs:
        for ours in (program, eager):
            what = f"CTR, {mode}, 2 servers + 2 workers, samples/s"
            lines.append(compared(what, ours, peer, goals[version]))
    return lines


def _program(version: str, mode: str) -> ServerContestant:
    script = f"ps_paddle{version.replace('.', '')}.py"
    return ServerContestant(f"fleetx, program of {version}", script, arguments=(mode,))


def local(steps: int, rounds: int) -> list[dict[str, Any]]:
    """Compare one server and one worker with one process that has all rows."""
    jobs = [
        ServerContestant(name, "ps_eager.py", arguments=(mode, "settled"), servers=1, workers=1)
        for name, mode in (
            ("fleetx, module", "async"),
            ("fleetx, module, fetching ahead", "ahead"),
        )
    ]
    alone = Contestant("one process, nn.EmbeddingBag", "ps_eager.py", arguments=("local",))
    contest([*jobs, alone], steps=steps, rounds=rounds)
    alone.rates = [rate * BATCH for rate in alone.rates]
    what = "CTR, async, 1 server + 1 worker, samples/s"
    return [compared(what, job, alone, 0.8) for job in jobs]


def link(steps: int, rounds: int) -> list[dict[str, Any]]:
    """Compare jobs that exchange in the background with one that waits, over a slow link."""
    with machines(2, mbit=MBIT) as pair:
        ahead, behind, waiting, geo, geo_waiting = (
            ServerContestant(
                name,
                "ps_eager.py",
                arguments=(mode, "settled"),
                servers=1,
                workers=1,
                machines=pair,
            )
            for name, mode in (
                ("fleetx, pushing behind and fetching ahead", "ahead"),
                ("fleetx, pushing behind", "async"),
                ("fleetx, waiting", "waiting"),
                ("fleetx, training during an exchange", "geo"),
                ("fleetx, waiting", "geo_waiting"),
            )
        )
        contest([ahead, behind, waiting, geo, geo_waiting], steps=steps, rounds=rounds)
    where = f"1 server + 1 worker, {MBIT} Mbit/s, samples/s"
    return [
        *(compared(f"CTR, async, {where}", job, waiting, 1.0) for job in (ahead, behind)),
        compared(f"CTR, geo, {where}", geo, geo_waiting, 1.0),
    ]


def compared(what: str, job: Contestant, peer: Contestant, goal: float) -> dict[str, Any]:
    """Return a line that compares two contestants by the ratios of their windows."""
    line = figures(what, job.rate, peer.name, peer.rate, goal, True)
    return {**line, "ours_name": job.name, "ratio": ratio(job, peer)}


def dense(rounds: int) -> list[dict[str, Any]]:
    """Compare a synchronous step of 100 MB with Gloo's all-reduce between two processes."""
    jobs = [
        ServerContestant(f"fleetx, {n} + {n}", "ps_dense.py", servers=n, workers=n) for n in (1, 2)
    ]
    gloo = GroupContestant("Gloo all-reduce", "all_reduce.py", arguments=("gloo", "100000000"))
    contest([*jobs, gloo], steps=2, rounds=rounds)
    lines = []
    for job in jobs:
        job.rates = [rate / BATCH / job.workers for rate in job.rates]
        what = f"100 MB pushed and pulled, {job.servers} server(s) + {job.workers} worker(s), /s"
        line = figures(what, job.rate, gloo.name, gloo.rate, 1.0, True)
        lines.append({**line, "ratio": ratio(job, gloo)})
    return lines


def recovery(rounds: int, rows: int = 1_000_000) -> list[dict[str, Any]]:
    """Measure the time from the death of a server to the next step, including its restart."""
    times = []
    with tempfile.TemporaryDirectory() as folder:
        endpoint = f"127.0.0.1:{free_ports(1)[0]}"
        command = [sys.executable, str(HERE / "contestants" / "ps_server.py"), endpoint, folder]
        environment = {**os.environ, "PYTHONPATH": OURS, "OMP_NUM_THREADS": "1"}
        server = subprocess.Popen(command, env=environment)
        try:
            client = Client([endpoint])
            client.create(SparseTableSpec(name="rows", dim=16))
            for ids in torch.arange(rows).split(65536):
                client.push_sparse("rows", ids, torch.ones(len(ids), 16))
            ids = torch.arange(26 * BATCH)
            for _ in range(rounds):
                server.kill()
                server.wait()
                begun = time.perf_counter()
                server = subprocess.Popen(command, env=environment)
                client.pull_sparse("rows", ids)
                client.push_sparse("rows", ids, torch.ones(len(ids), 16))
                times.append(time.perf_counter() - begun)
            client.stop_servers()
            server.wait(timeout=60)
        finally:
            server.kill()
            server.wait()
    spent = statistics.median(times)
    print("seconds to the next step after SIGKILL:", *(f"{each:.2f}" for each in times))
    what = f"seconds to the next step after a server with {rows:,} rows was killed"
    return [figures(what, spent, "5 s", 5.0, 1.0, False)]


def main() -> None:
    """Measure, print the table and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contestant")
    parser.add_argument("--steps", type=int, default=150, help="steps of a turn")
    parser.add_argument("--only", default=",".join(PARTS), help="what to measure")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if not set(wanted) <= set(PARTS):
        parser.error(f"--only {options.only}: choose from {','.join(PARTS)}.")
    torch.set_num_threads(1)
    rounds, steps = options.rounds, options.steps
    lines = []
    for mode in PARTS[:3]:
        if mode in wanted:
            lines += ctr(mode, steps, rounds)
    if "local" in wanted:
        lines += local(steps, rounds)
    if "link" in wanted:
        lines += link(min(steps, 40), rounds)
    if "dense" in wanted:
        lines += dense(rounds)
    if "recovery" in wanted:
        lines += recovery(rounds)
    show(lines, "Parameter servers")
    write_record("parameter_server", rows=_with_others(lines))


def _with_others(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the old figures, with those that were measured again replaced."""
    try:
        before = json.loads((RESULTS / "parameter_server.json").read_text())["rows"]
    except FileNotFoundError:
        return lines
    new = {_subject(line): line for line in lines}
    kept = [new.pop(_subject(line), line) for line in before]
    return kept + list(new.values())


def _subject(line: dict[str, Any]) -> tuple[str, ...]:
    return line["what"], line["ours_name"], line["peer_name"]


if __name__ == "__main__":
    main()
