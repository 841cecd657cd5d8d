"""A served two-tower model with mapped tables, against the same rows in nn.EmbeddingBag.

    python bench/recommender.py [--rows 10000000] [--requests 2000] [--rounds 5] [--takeovers 5]

Three measurements: requests per second of `fleetx serve` with the rows of a save mapped, and of the
same model with its rows in the memory of the exported program, both with hot ids, taking turns; the
longest request while the server takes over a new save, beside the usual 99th percentile, and the
longest and the 99.9th percentile of as many requests without a takeover; the time to export the
table, beside that of copying its bytes. Figures go to bench/results/recommender.json.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import torch
from contest import OURS
from goals import goal, show
from http_load import Load, request
from record import write_record
from safetensors.numpy import save
from torch import nn

import fleetx
from fleetx.ps.tables.table_files import SERVERS, finish_save, save_part
from fleetx.ps.tables.table_spec import SparseTableSpec

RAW = "application/vnd.safetensors"
DIM, BATCH, HOT, CLIENTS = 16, 32, 10_000, 8


class Towers(nn.Module):
    """Scores of users and films; the source of the users' rows is exchangeable."""

    def __init__(self, rows: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.rows = rows
        self.head = nn.Sequential(nn.Linear(DIM, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, user: torch.Tensor) -> torch.Tensor:
        return self.head(self.rows(user))


class Bag(nn.Module):
    """The rows in memory."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag.from_pretrained(weight, mode="sum")

    def forward(self, user: torch.Tensor) -> torch.Tensor:
        return self.bag(user.unsqueeze(-1))


def save_rows(folder: Path, rows: torch.Tensor) -> None:
    spec = SparseTableSpec(name="user", dim=DIM)
    state = {"ids": torch.arange(len(rows)), "Param": rows}
    save_part(folder / SERVERS, spec, state, server=0, servers=1, token="a1")
    finish_save(folder / SERVERS, "user", servers=1, token="a1")


class Server:
    """A running `fleetx serve`."""

    def __init__(self, *arguments: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        command = [sys.executable, "-W", "ignore", "-m", "fleetx", "serve", *arguments]
        command += ["--port", str(self.port), "--max_memory_mb", "0"]
        environment = {**os.environ, "PYTHONPATH": OURS}
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        while not self.is_ready():
            assert self.process.poll() is None, "the server has ended"
            time.sleep(0.1)

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready") as answer:
                return answer.status == 200
        except (urllib.error.URLError, ConnectionError):
            return False

    def version(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready") as answer:
            return str(answer.headers["X-Model-Version"])

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def messages() -> list[bytes]:
    draw = np.random.default_rng(0)
    bodies = [save({"user": draw.integers(0, HOT, BATCH)}) for _ in range(CLIENTS)]
    return [request("/v1/predict", body, RAW) for body in bodies]


def rates(servers: dict[str, Server], requests: int, rounds: int) -> dict[str, float]:
    """Return requests per second of servers that take turns."""
    loads = {name: Load(server.port, messages()) for name, server in servers.items()}
    found: dict[str, list[float]] = {name: [] for name in servers}
    for turn in range(rounds + 1):
        for name, load in loads.items():
            seconds = load.run(requests)
            if turn:  # the first one warms up
                found[name].append(requests / seconds)
    for load in loads.values():
        load.close()
    return {name: statistics.median(each) for name, each in found.items()}


def ask(port: int, body: bytes) -> float:
    """Return the seconds of one request; raise an error if it fails."""
    began = time.perf_counter()
    wanted = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/predict", body, {"Content-Type": RAW}
    )
    with urllib.request.urlopen(wanted) as answer:
        assert answer.status == 200
        answer.read()
    return time.perf_counter() - began


def takeover(server: Server, export: Any, version: int) -> dict[str, list[float]]:
    """Return the seconds of requests while a new save is taken over, and of as many without."""
    body = save({"user": np.arange(BATCH)})
    old = server.version()
    export(version)
    began, during = time.perf_counter(), []
    while server.version() == old:
        during += [ask(server.port, body) for _ in range(20)]
    seconds = time.perf_counter() - began
    usual = [ask(server.port, body) for _ in during]
    return {"during": during, "usual": usual, "seconds": [seconds]}


def waits_of(taken: list[dict[str, list[float]]]) -> dict[str, float]:
    """Return medians over takeovers of the longest requests, and the usual 99th percentile."""
    usual = sorted(seconds for each in taken for seconds in each["usual"])
    return {
        "p99": usual[int(len(usual) * 0.99)],
        "p99.9": usual[int(len(usual) * 0.999)],
        "usual longest": statistics.median(max(each["usual"]) for each in taken),
        "longest": statistics.median(max(each["during"]) for each in taken),
        "requests": statistics.median(len(each["during"]) for each in taken),
        "takeovers": len(taken),
        "seconds": statistics.median(each["seconds"][0] for each in taken),
    }


def export_times(folder: Path, rounds: int, export: Any) -> dict[str, float]:
    """Return seconds to export the table, and to copy its bytes; the first round warms up."""
    times: dict[str, list[float]] = {"export": [], "copy": []}
    source = folder / "saved" / SERVERS
    for turn in range(rounds + 1):
        began = time.perf_counter()
        export(folder / "exports" / str(turn))
        times["export"].append(time.perf_counter() - began)
        began = time.perf_counter()
        shutil.copytree(source, folder / "copy")
        os.sync()
        times["copy"].append(time.perf_counter() - began)
        for name in ("copy", "exports"):
            shutil.rmtree(folder / name)
    return {name: statistics.median(each[1:]) for name, each in times.items()}


def check_goals(
    speeds: dict[str, float], waits: dict[str, float], times: dict[str, float], rows: int
) -> list[dict[str, Any]]:
    """Return the goals and whether they were reached."""
    mapped, memory = speeds["mapped"], speeds["in memory"]
    longest, usual = waits["longest"], waits["p99"]
    return [
        goal(
            f"requests/s with {rows / 1e6:g} M rows mapped ({mapped:.0f}), times those with "
            f"nn.EmbeddingBag in memory ({memory:.0f}), hot ids",
            mapped / memory,
            0.8,
            at_least=True,
        ),
        goal(
            f"longest of {waits['requests']:.0f} requests while a new save is taken over "
            f"({1e3 * longest:.1f} ms, median of {waits['takeovers']:.0f} takeovers of "
            f"{waits['seconds']:.1f} s), times the usual 99th percentile ({1e3 * usual:.1f} ms; "
            f"without a takeover, the 99.9th: {1e3 * waits['p99.9']:.1f} ms, the longest of as "
            f"many: {1e3 * waits['usual longest']:.1f} ms)",
            longest / usual,
            2.0,
            at_least=False,
        ),
        goal(
            f"seconds to export the model with its rows ({times['export']:.2f}), times those of "
            f"copying their bytes ({times['copy']:.2f})",
            times["export"] / times["copy"],
            2.0,
            at_least=False,
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--takeovers", type=int, default=5)
    parser.add_argument("--folder", help="where to write (default: a temporary folder)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        rows = torch.randn(args.rows, DIM)
        save_rows(folder / "saved", rows)
        model, example = Towers(fleetx.SparseEmbedding("user", DIM)), (torch.arange(2),)

        def export(target: Path) -> None:
            fleetx.save_recommender(model, target, example, tables=folder / "saved")

        def export_version(number: int) -> None:
            export(folder / "models" / str(number))

        times = export_times(folder, args.rounds, export)
        export_version(1)
        shapes = ({0: torch.export.Dim("rows", min=1)},)
        plain = torch.export.export(Towers(Bag(rows)).eval(), example, dynamic_shapes=shapes)
        torch.export.save(plain, folder / "memory.pt2")
        del rows, plain
        servers = {
            "mapped": Server(str(folder / "models"), "--watch", "--watch_seconds", "0.2"),
            "in memory": Server(str(folder / "memory.pt2")),
        }
        try:
            speeds = rates(servers, args.requests, args.rounds)
            gc.collect()
            gc.freeze()  # a garbage collection of this process would count as a slow response
            taken = []
            for version in range(2, args.takeovers + 2):
                # Another head gives another model; its rows are those of the save.
                nn.init.constant_(model.head[0].bias, version)
                taken.append(takeover(servers["mapped"], export_version, version))
            waits = waits_of(taken)
        finally:
            for server in servers.values():
                server.stop()
    goals = check_goals(speeds, waits, times, args.rows)
    show(goals)
    write_record(
        "recommender",
        rows=args.rows,
        requests_per_second=speeds,
        takeover=waits,
        seconds=times,
        goals=goals,
    )


if __name__ == "__main__":
    main()
