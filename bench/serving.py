"""`fleetx serve` against a plain FastAPI endpoint and litserve: requests per second.

    python bench/serving.py [--rounds 7] [--size 64] [--clients 16]

ResNet-18 with 1000 classes, saved in Paddle's format, pictures of 3 x size x size, one per request;
16 clients, each of which sends its next request when it has a response. All servers run the same
model through the same loader, use the same bodies (raw tensors), and choose their number of
threads; all stay alive and take turns. All responses are compared with a local run. Figures go to
bench/results/serving.json.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from contest import HERE, OURS, Contestant, contest
from http_load import Load, request
from record import write_record
from static_graph import row, show

RAW = "application/vnd.safetensors"
MAX_BATCH, MAX_DELAY = 32, 0.002


@dataclass
class Served(Contestant):
    """A server and its clients; a step is a request."""

    command: list[str] = field(default_factory=list)
    messages: list[bytes] = field(default_factory=list)
    expected: Any = None
    port: int = 0

    def start(self) -> None:
        """Start the server, wait until it responds, and warm it up."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-W",
                "ignore",
                *(each.format(port=self.port) for each in self.command),
            ],
            env={**os.environ, "PYTHONPATH": OURS},
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            self._wait()
            self._send(4 * len(self.messages))
        except BaseException:
            self.stop()
            raise

    def _wait(self) -> None:
        end = time.monotonic() + 120
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with code {self.process.returncode}.")
            try:
                once = Load(self.port, self.messages[:1])
                once.run(1)
            except (ConnectionError, RuntimeError):
                time.sleep(0.2)  # not listening yet, or not ready
            else:
                once.close()
                return
        raise RuntimeError(f"{self.name} does not answer.")

    def _send(self, count: int) -> float:
        """Send `count` requests, check the responses, and return the seconds it took."""
        from fleetx.serving.bodies import decode_raw

        load = Load(self.port, self.messages)  # new connections: servers close idle ones
        try:
            seconds = load.run(count)
            for answer, expected in zip(load.answers(), self.expected, strict=True):
                (found,) = decode_raw(answer).values()
                np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4, err_msg=self.name)
        finally:
            load.close()
        return seconds

    def window(self, steps: int) -> None:
        """Send some requests and record their rate."""
        self.rates.append(steps / self._send(steps))

    def stop(self) -> None:
        """Stop the server and its child processes."""
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def save_resnet(folder: str, size: int) -> str:
    """Save ResNet-18 and return its path."""
    from fleetx import static
    from fleetx.static import io
    from fleetx.static.models.resnet import resnet18

    main, startup = static.Program(), static.Program()
    main.random_seed = startup.random_seed = 1
    with static.program_guard(main, startup), static.scope_guard(static.Scope()):
        picture = static.data("picture", [-1, 3, size, size], "float32")
        scores = resnet18(num_classes=1000)(picture)
        executor = static.Executor()
        executor.run(startup)
        io.save_inference_model(f"{folder}/resnet18", [picture], [scores], executor)
    return f"{folder}/resnet18.pdmodel"


def servers(model: str, size: int, clients: int) -> list[Served]:
    """Return the servers, ours first."""
    from fleetx.serving.bodies import encode_raw
    from fleetx.serving.model import load_model

    generator = np.random.default_rng(0)
    pictures = generator.normal(size=(clients, 1, 3, size, size)).astype("float32")
    local = load_model(model)
    expected = [next(iter(local.run({"picture": each}).values())) for each in pictures]
    messages = [request("/v1/predict", encode_raw({"picture": each}), RAW) for each in pictures]
    here = str(HERE / "contestants")
    limits = ["--max_batch", str(MAX_BATCH), "--max_delay_ms", str(MAX_DELAY * 1000)]
    plain = [f"{here}/serving_plain.py", model, "{port}"]
    lit = [f"{here}/serving_litserve.py", model, "{port}", str(MAX_BATCH), str(MAX_DELAY)]
    commands = {
        "fleetx serve": ["-m", "fleetx", "serve", model, "--port", "{port}", *limits],
        "plain FastAPI, def": [*plain, "thread"],
        "plain FastAPI, async def": [*plain, "loop"],
        "litserve": lit,
    }
    return [
        Served(name, "", command=command, messages=messages, expected=expected)
        for name, command in commands.items()
    ]


def main() -> None:
    """Measure, print the table and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each server")
    parser.add_argument("--requests", type=int, default=400, help="requests of a turn")
    parser.add_argument("--size", type=int, default=64, help="height and width of the pictures")
    parser.add_argument("--clients", type=int, default=16, help="requests at a time")
    options = parser.parse_args()
    # The servers have their own sessions: terminating this program must not leave them behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as folder:
        model = save_resnet(folder, options.size)
        everyone = servers(model, options.size, options.clients)
        contest(list(everyone), steps=options.requests, rounds=options.rounds)
    ours, *others = everyone
    what = f"ResNet-18, {options.size}x{options.size}, {options.clients} clients, requests/s"
    goals = {"litserve": 1.0}
    lines = [row(what, ours, other, goals.get(other.name, 1.5)) for other in others]
    show(lines, "Serving")
    write_record("serving", rows=lines)


if __name__ == "__main__":
    main()
