"""The cost of a message as jobs grow: servers and workers that exchange rows and compute nothing.

Every worker pulls and pushes 512 rows of 16 numbers per server and step (SGD, asynchronous), with 1
server and 1 worker, 2 + 2, 8 servers and 16 workers, and 16 and 64. A message is one pull or push
at one server. All processes share this machine, so the figure is the CPU time of all of them per
message, without their start; it should not depend on how many there are.

    python bench/server_scale.py [--messages 8000] [--rounds 3]

Writes bench/results/server_scale.json, with a plot next to it (needs matplotlib, the extra
"bench").
"""

import argparse
import contextlib
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from contest import free_ports
from record import RESULTS, write_record
from static_graph import figures, show

from fleetx.ps.client.client import Client
from fleetx.ps.server.server import run_server
from fleetx.ps.server.server_settings import ServerSettings
from fleetx.ps.tables.table_spec import SparseTableSpec

# Servers and workers.
LAYOUTS = ((1, 1), (2, 2), (8, 16), (16, 64))
ROWS, DIM, IDS = 512, 16, 100_000
FORK = multiprocessing.get_context("fork")


def cpu_seconds(processes: list[Any]) -> float:
    """Return the CPU time of processes so far."""
    total = 0
    for process in processes:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def work(endpoints: list[str], worker: int, workers: int, pipe: Any) -> None:
    """Exchange rows for the numbers of steps read from the pipe, until it sends 0."""
    client = Client(endpoints, worker=worker, workers=workers)
    client.create(SparseTableSpec(name="rows", dim=DIM))
    torch.manual_seed(worker)
    batches = [torch.randint(IDS, (ROWS * len(endpoints),)).unique() for _ in range(8)]
    grads = torch.randn(ROWS * len(endpoints), DIM)
    for ids in batches:
        client.push_sparse("rows", ids, grads[: len(ids)])
    pipe.send("ready")
    while steps := pipe.recv():
        for step in range(steps):
            ids = batches[step % len(batches)]
            client.pull_sparse("rows", ids)
            client.push_sparse("rows", ids, grads[: len(ids)])
        pipe.send("done")
    client.finish()


@contextlib.contextmanager
def job(servers: int, workers: int) -> Iterator[tuple[list[Any], list[Any]]]:
    """Run a job; yield its processes, and a pipe to every worker."""
    endpoints = [f"127.0.0.1:{port}" for port in free_ports(servers)]
    processes, pipes = [], []
    for index, endpoint in enumerate(endpoints):
        settings = ServerSettings(
            workers=workers, index=index, servers=servers, allow_insecure=True
        )
        processes.append(FORK.Process(target=run_server, args=(endpoint, settings)))
    for worker in range(workers):
        here, there = FORK.Pipe()
        pipes.append(here)
        processes.append(FORK.Process(target=work, args=(endpoints, worker, workers, there)))
    try:
        for process in processes:
            process.start()
        for pipe in pipes:
            pipe.recv()
        yield processes, pipes
        for pipe in pipes:
            pipe.send(0)
        for process in processes:
            process.join(60)
    finally:
        for process in processes:
            process.kill()


def measure(servers: int, workers: int, messages: int, rounds: int) -> dict[str, float]:
    """Return the CPU time of a message, and the messages per second of the whole job."""
    steps = max(1, messages // (2 * servers * workers))
    count = 2 * servers * workers * steps
    costs, rates = [], []
    with job(servers, workers) as (processes, pipes):
        for _ in range(rounds + 1):
            before, begun = cpu_seconds(processes), time.perf_counter()
            for pipe in pipes:
                pipe.send(steps)
            for pipe in pipes:
                pipe.recv()
            costs.append((cpu_seconds(processes) - before) / count)
            rates.append(count / (time.perf_counter() - begun))
    # The first round warms up.
    return {
        "servers": servers,
        "workers": workers,
        "cpu_seconds": statistics.median(costs[1:]),
        "messages_per_second": statistics.median(rates[1:]),
    }


def plot(points: list[dict[str, float]], path: Path) -> None:
    """Plot the cost of a message over the number of processes; without matplotlib, print a note."""
    try:
        import matplotlib
    except ImportError:
        print("no plot: install matplotlib (the extra 'bench').", file=sys.stderr)
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5, 3.5))
    sizes = [point["servers"] + point["workers"] for point in points]
    axes.plot(sizes, [point["cpu_seconds"] * 1e6 for point in points], marker="o")
    axes.set(xscale="log", xlabel="processes", ylabel="µs of CPU per message", ylim=(0, None))
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    """Measure, print the table and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=8000, help="of a round, of all workers")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    points = []
    for servers, workers in LAYOUTS:
        points.append(measure(servers, workers, given.messages, given.rounds))
        print(", ".join(f"{name} {value:,.6g}" for name, value in points[-1].items()), flush=True)
    base = points[1]["cpu_seconds"] * 1e6
    lines = []
    for point in points[2:]:
        what = f"µs of CPU per message, {point['servers']} servers + {point['workers']} workers"
        lines.append(figures(what, point["cpu_seconds"] * 1e6, "2 + 2", base, 1.2, False))
    show(lines, "The cost of a message")
    write_record("server_scale", rounds=given.rounds, points=points, rows=lines)
    plot(points, RESULTS / "server_scale.png")


if __name__ == "__main__":
    main()
