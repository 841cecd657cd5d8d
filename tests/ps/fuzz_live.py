"""Hostile frames against a live server while two workers train with it.

    PYTHONPATH=tests python tests/ps/fuzz_live.py 100000 [seed]

A worker of the same job lies: it has the keys, takes no part in the steps, and sends what the
wire's grammar makes (`fuzz_frames`), except for what a worker is trusted with: changing the others'
tables, taking their place, and stopping the server. Strangers without keys send bytes to the same
port. The training must end with the same bits as an undisturbed one, and the server's memory must
stay within 64 MB of its start.
"""

from __future__ import annotations

import contextlib
import random
import socket
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import zmq
from fuzz import MOST_GROWTH, resident
from fuzz_frames import Frames, Grammar, Identity, Recipe, encoded, frames_of
from processes import Process, servers
from training import dense_specs, make_mode, result, train

from fleetx.checkpoint import manifest
from fleetx.ps.client.client import Client, ClientSettings
from fleetx.ps.server.snapshots import Durability
from fleetx.ps.wire import messages as wire
from fleetx.ps.wire import security
from fleetx.ps.wire.assembly import parts
from fleetx.ps.wire.messages import Flag, Header, Kind, Problem, WireError
from waiting import LIMIT, wait_until

WORKERS = 3
LIAR = 2
STEPS = 200
_BATCH = 25
_TABLES = 2
"""The tables of the others are the first ones."""
_KINDS = [kind for kind in Kind if kind not in (Kind.STOP, Kind.LOAD)]
_CHANGES = (Kind.PUSH, Kind.ADD, Kind.SET)
_FIRST = 2
"""Steps that are done before the first lie."""
_OLD = 1000
"""Incarnations of real processes are times, and larger."""


def is_within_trust(header: Header) -> bool:
    """Return whether a message can only do harm by a defect of the server."""
    if header.kind not in _KINDS or (header.kind in _CHANGES and header.table < _TABLES):
        return False
    if header.kind in (Kind.COMMIT, Kind.NORM) and header.step > 0:
        return False  # the first step is done, and repetitions of it count for nothing
    newest = time.time_ns() if header.worker == LIAR else _OLD
    return header.incarnation <= newest


class Liar:
    """A worker that lies, and strangers next to it."""

    def __init__(self, endpoint: str, keys: security.JobKeys, seed: int, folder: Path) -> None:
        self._endpoint = endpoint
        self._draw = random.Random(seed)
        self._grammar = Grammar(self._draw, folder, kinds=_KINDS, workers=WORKERS)
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 0
        security.secure_client(self._socket, keys)
        self._socket.connect(f"tcp://{endpoint}")
        self._me = Identity(LIAR, time.time_ns(), 0)
        self.outcomes: Counter[str] = Counter()
        self._wrong = encoded([(99, torch.ones(3))])
        self._ask(Kind.HELLO, wire.json_body({"workers": WORKERS}))
        self._ask(Kind.FINISH, [])  # the others' steps do not wait for it

    def close(self) -> None:
        """Close the connection."""
        self._context.destroy()

    def _ask(self, kind: Kind, body: Any) -> Header:
        """Send a right message and return the reply."""
        me = self._me
        me.request += 1
        header = Header(
            kind,
            worker=LIAR,
            incarnation=me.incarnation,
            epoch=me.epoch,
            sequence=me.due,
            request=me.request,
        )
        for frames in parts(header, body):
            self._socket.send_multipart(frames)
        reply = self._read(me.request)
        me.epoch = reply.epoch
        if kind in wire.SEQUENCED:
            me.due += 1
        return reply

    def _read(self, request: int) -> Header:
        """Read replies up to that of a request, and count them."""
        while True:
            assert self._socket.poll(LIMIT * 1000), "the server does not answer"
            frames = self._socket.recv_multipart()
            header = wire.unpack_header(frames[0])
            problem = Problem(header.problem).name if header.problem else header.kind.name
            self.outcomes[problem] += 1
            if header.request == request and header.kind != Kind.PULSE:
                if header.kind == Kind.DONE and len(frames[2]) and frames[2][:1] == b"{":
                    self._learn(frames[2])
                return header

    def _learn(self, status: bytes) -> None:
        applied = wire.read_json([(0, torch.frombuffer(bytearray(status), dtype=torch.uint8))])
        self._me.due = applied["applied"].get(str(LIAR), 0) + 1

    def make_ready(self) -> None:
        """Make the server load what tables with torch's optimizers need, before it is measured."""
        spec = dense_specs(1, "torch.Adam")[0].to_dict() | {"name": "lies"}
        assert self._ask(Kind.CREATE, wire.json_body(spec)).kind == Kind.DONE

    def wait_for_step(self, step: int) -> None:
        """Wait until the server has done so many steps."""
        wait_until(lambda: self._ask(Kind.STATUS, []).step >= step, f"step {step}")

    def attack(self, count: int, steps: int, folder: Path, pid: int) -> str:
        """Send so many frames while the steps run; return a report about the server's memory."""
        self.make_ready()
        start = most = resident(pid)
        sent = 0
        last = steps - 1  # it begins when the attack is over, since the server ends after it
        for step in range(_FIRST, last):
            (folder / f"step{step}").touch()
            goal = count * (step + 1 - _FIRST) // (last - _FIRST)
            strangers = (goal - sent) // 5
            self.bother(strangers)
            self.lie(goal - sent - strangers)
            sent = goal
            most = max(most, resident(pid))
        print(", ".join(f"{n} {name}" for name, n in self.outcomes.most_common()))
        told = (
            f"memory of the server {start / 2**20:.0f} MiB at the start and at most "
            f"{(most - start) / 2**20:+.1f} MiB"
        )
        assert most - start < MOST_GROWTH, told
        return told

    def lie(self, count: int) -> None:
        """Send so many frames, in batches whose replies are read."""
        while count > 0:
            sent = 0
            while sent < min(_BATCH, count):
                for frames in self._message():
                    self._socket.send_multipart(frames)
                    sent += 1
            count -= sent
            reply = self._ask(Kind.STATUS, [])
            if reply.kind != Kind.DONE:  # a lie has taken the session
                self._me.incarnation = time.time_ns()
                hello = self._ask(Kind.HELLO, wire.json_body({"workers": WORKERS}))
                again = self._ask(Kind.STATUS, [])
                problems = [Problem(each.problem).name for each in (reply, hello, again)]
                assert again.kind == Kind.DONE, f"the server answered {problems}"

    def _message(self) -> list[Frames]:
        recipe, damaged = self._grammar.recipe(), None
        if recipe.kind in _CHANGES and recipe.table < _TABLES:
            recipe = Recipe(recipe.kind, self._wrong, recipe.flags & ~Flag.SHARED, recipe.table)
            found = frames_of(recipe, self._me)
        else:
            if recipe.kind in (Kind.COMMIT, Kind.NORM):
                recipe = Recipe(recipe.kind, recipe.body, lies=(("step", 0),))
            found = frames_of(recipe, self._me)
            plain = [[bytearray(frame) for frame in frames] for frames in found]
            if self._draw.random() < 0.15:
                damaged = found
                self._grammar.damage(found)
            if not all(map(_is_allowed, found)):
                found = plain
            if not all(map(_is_allowed, found)):
                return self._message()
        # A number is used up by what is refused too, unless its header is; STATUS tells the truth.
        is_plain = not recipe.lies and not recipe.flags & (Flag.SHARED | Flag.FETCH)
        self._me.due += recipe.kind in wire.SEQUENCED and is_plain and found is not damaged
        return [frames for frames in found if frames]

    def bother(self, count: int) -> None:
        """Send so many frames as strangers without keys, a few per connection."""
        host, _, port = self._endpoint.rpartition(":")
        greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00"
        mechanisms = (b"CURVE", b"NULL", b"PLAIN", b"\xff" * 20)
        for _ in range(0, count, 10):
            with contextlib.suppress(OSError):  # the server hangs up
                stranger = socket.create_connection((host, int(port)))
                with stranger:
                    stranger.sendall(greeting + self._draw.choice(mechanisms).ljust(52, b"\0"))
                    for _ in range(10):
                        frame = self._draw.choice(self._draw.choice(self._message()))
                        size = self._draw.choice([len(frame), 1 << 40])
                        flag = self._draw.choice([b"\x02", b"\x04", b"\x06", b"\x03"])
                        stranger.sendall(flag + size.to_bytes(8, "big") + bytes(frame))


def training_worker(
    endpoints: list[str], worker: int, keys: security.JobKeys, steps: int, folder: str
) -> None:
    """Train as a process of its own; a step begins when its file is there."""
    client = Client(endpoints, worker=worker, workers=WORKERS, settings=ClientSettings(keys=keys))
    mode = make_mode("sync", client, 1)
    values = train(
        mode, steps, lambda step: wait_until(Path(folder, f"step{step}").exists, f"step {step}")
    )
    manifest.save_state(Path(folder, f"result{worker}"), values)
    mode.stop()


def _is_allowed(frames: Frames) -> bool:
    if not frames:
        return True
    try:
        return is_within_trust(wire.unpack_header(frames[0]))
    except WireError:
        return True


def job(folder: Path, count: int, seed: int, steps: int) -> tuple[dict[str, torch.Tensor], str]:
    """Train with so many hostile frames; return the values at the end and a report."""
    folder.mkdir()
    keys, log, told = security.make_keys(), str(folder / "log"), "undisturbed"
    durability = Durability(folder=folder / "server", snapshot_bytes=200_000)
    with servers(log=log, workers=WORKERS, keys=keys, durability=durability) as (endpoints, run):
        liar = Liar(endpoints[0], keys.for_workers(), seed, folder)
        arguments = (keys.for_workers(), steps, str(folder))
        workers = [Process(training_worker, endpoints, w, *arguments, log=log) for w in range(2)]
        try:
            for step in range(_FIRST):
                (folder / f"step{step}").touch()
            liar.wait_for_step(_FIRST)
            if count:
                told = liar.attack(count, steps, folder, run[0].process.pid)
            for step in range(_FIRST, steps):  # all without an attack, else the last one
                (folder / f"step{step}").touch()
            codes = [process.end() for process in (*workers, *run)]
        except AssertionError as error:
            raise AssertionError(f"{error}; the log: {Path(log).read_text()[-3000:]}") from error
        finally:
            liar.close()
            for worker in workers:
                worker.kill()
    text = Path(log).read_text()
    if codes != [0] * 3 or "Traceback" in text:
        shown = text[max(0, text.find("Traceback") - 300) :][:3000] if "Traceback" in text else text
        raise RuntimeError(f"exit codes {codes}; the log: {shown[-3000:]}")
    found = result(folder, 0)
    assert all(torch.equal(value, result(folder, 1)[name]) for name, value in found.items())
    return found, told


def main(count: int, seed: int, steps: int = STEPS) -> None:
    """Train quietly, and again with so many hostile frames; compare and report."""
    print(f"fuzz, live: {count} frames, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        expected, _ = job(Path(name, "quiet"), 0, seed, steps)
        begun = time.monotonic()
        found, told = job(Path(name, "hostile"), count, seed, steps)
    for part, value in expected.items():
        assert torch.equal(value, found[part]), f"{part} differs (seed {seed})"
    print(
        f"fuzz, live: {count} frames during {steps} steps, {time.monotonic() - begun:.0f} s, the "
        f"result is equal bit for bit, {told}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 100_000, int(sys.argv[2]) if sys.argv[2:] else 1)
