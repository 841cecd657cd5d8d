"""Hostile frames against a server's request handler, without sockets.

    PYTHONPATH=tests python tests/ps/fuzz.py 1000000 [seed]

A stranger and a worker that lies send messages made by the wire's grammar: right and wrong kinds,
numbers, shapes, bodies in any number of parts, and bytes changed afterwards. Whatever comes, the
handler answers or ignores it, no exception is unexpected, and memory stays bounded.
"""

from __future__ import annotations

import contextlib
import logging
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from training import dense_specs, sparse_spec

from fleetx.ps.server.request_handler import RequestHandler
from fleetx.ps.server.server_settings import ServerSettings
from fleetx.ps.server.snapshots import Durability
from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import Tensors, parts
from fleetx.ps.wire.messages import Flag, Header, Kind

WORKERS = 2
ROUTES = {0: b"honest", 1: b"liar", 2: b"stranger"}
CONDITIONS: list[Any] = [
    {"version": 0},
    {"version": 10**30},
    {"squares": 1},
    {"barrier": 1},
    {"barrier": []},
    {"barrier": [], "version": 0},
    {"values": "dense"},
    {"values": 3},
    {},
    {"version": None},
    [],
    "x",
    None,
]


class Outbox:
    """Counts replies, and encodes them as a socket would."""

    def __init__(self) -> None:
        self.sent = 0
        self.last: dict[bytes, Header] = {}

    def send(self, route: bytes, header: Header, tensors: Tensors) -> None:
        """Encode a message."""
        parts(header, tensors)
        self.sent += 1
        self.last[route] = header

    def send_frames(self, route: bytes, frames: list[bytes]) -> None:
        """Count a message."""
        self.sent += 1

    def busy(self) -> contextlib.AbstractContextManager[None]:
        """Do nothing: there are no heartbeats."""
        return contextlib.nullcontext()


class Attacker:
    """A server without a socket, and the frames that are thrown at it."""

    def __init__(self, draw: random.Random, folder: Path) -> None:
        self.draw = draw
        self.folder = folder
        self.out = Outbox()
        self.settings = ServerSettings(
            workers=WORKERS,
            durability=Durability(folder=folder / "server", snapshot_bytes=50_000),
            lease=1e9,  # nobody is given up for being silent
            worker_wait=1e9,
        )
        self.handler = RequestHandler(self.settings)
        self.handler.connect(self.out)
        for worker in range(WORKERS):
            hello = wire.json_body({"workers": WORKERS, "process": 1, "host": "x"})
            self.send(worker, parts(Header(Kind.HELLO, worker=worker, incarnation=5), hello))
        self.sequence = 0
        for spec in (dense_specs(1)[0], sparse_spec()):
            self.sequence += 1
            header = Header(
                Kind.CREATE, incarnation=5, epoch=self.handler.epoch, sequence=self.sequence
            )
            self.send(0, parts(header, wire.json_body(spec.to_dict())))

    def send(self, worker: int, messages: list[list[Any]]) -> None:
        """Give the frames of all parts of a message to the server."""
        for frames in messages:
            contents = [memoryview(bytearray(frame)) for frame in frames]
            self.handler.receive(ROUTES[worker], contents)

    def attack(self, count: int) -> None:
        """Send messages."""
        for _ in range(count):
            worker = self.draw.choice([1, 1, 1, 2])
            frames = [[bytearray(f) for f in part] for part in self.message()]
            if self.draw.random() < 0.3:
                self.damage(frames)
            if self.draw.random() < 0.1:
                self.draw.shuffle(frames)
            self.send(worker, frames)
            if self.draw.random() < 0.02:
                self.handler.tick()

    def message(self) -> list[list[Any]]:
        """Return the parts of a message that may be right or wrong."""
        draw = self.draw
        kind = draw.choice(list(Kind))
        header = Header(
            kind,
            flags=self.flags(),
            worker=draw.choice([1, 1, 1, 1, 0, 2, 2**32 - 1]),
            incarnation=draw.choice([5, 5, 5, 5, 5, 4]),
            epoch=draw.choice([self.handler.epoch] * 6 + [0]),
            request=draw.randrange(1, 50),
            sequence=self.next_sequence(),
            table=draw.choice([0, 0, 1, 1, 2, 99, 2**32 - 1]),
            step=draw.choice([-1, 0, 0, 1, self.handler.state.sync.version, 2**62, -(2**63)]),
            rate=draw.choice([0.1, float("nan"), float("inf")]),
            norm=draw.choice([1.0, 0.0, float("nan")]),
            reply_room=draw.choice([0, 1 << 40]),
        )
        body = self.body(kind)
        found = parts(header, body)
        if draw.random() < 0.05:
            return self.in_parts(header, body)
        return found

    def in_parts(self, header: Header, body: Tensors) -> list[list[Any]]:
        """Return a message cut into small parts, some of which lie about their place."""
        specs = wire.lay_out(body)
        data = bytes(self.draw.randrange(200))
        count = self.draw.randrange(1, 5)
        header.total = self.draw.choice([len(data), wire.body_size(specs), 10**6])
        result: list[list[Any]] = []
        for number in range(count):
            header.part, header.parts = number, count
            header.offset = self.draw.choice([number * len(data) // count, 0, 2**63])
            piece = data[number * len(data) // count : (number + 1) * len(data) // count]
            result.append([header.pack(), wire.pack_specs(specs) if number == 0 else b"", piece])
        return result

    def flags(self) -> Flag:
        """Return any flags, usually few."""
        found = Flag.NONE
        for flag in (Flag.JSON, Flag.SYNC, Flag.SHARED, Flag.CLOCKED, Flag.HELD, Flag.FETCH):
            if self.draw.random() < 0.15:
                found |= flag
        return found

    def next_sequence(self) -> int:
        """Return a sequence number: usually the one that is due."""
        due = self.handler.state.applied.get(1, 0) + 1
        return self.draw.choice([due] * 8 + [0, 1, due - 1, due + 1, 2**64 - 1])

    def body(self, kind: Kind) -> Tensors:
        """Return a body, right for some kind of message and table."""
        draw = self.draw
        choice = draw.randrange(9)
        if choice == 0:
            return []
        if choice == 1 or kind == Kind.WAIT:
            return self.json(draw.choice(CONDITIONS))
        if choice == 2 or kind == Kind.HELLO:
            shared = {"process": draw.choice([1, -1, "x"]), "descriptor": 3, "bytes": 10}
            return self.json(
                {
                    "workers": draw.choice([WORKERS, WORKERS, 0, "2"]),
                    "shared": draw.choice([None, shared, [], shared | {"token": "zz"}]),
                    "clock": draw.choice([0, 10**40, None, []]),
                }
            )
        if choice == 3 or kind in (Kind.SAVE, Kind.LOAD):
            path = draw.choice([str(self.folder / "save"), "", 3, None, "\0", "/proc/none/x"])
            return self.json({"path": path, "token": draw.choice(["t", "../x", 4])})
        if choice == 4 or kind == Kind.CREATE:
            return self.json(self.spec())
        ids = torch.tensor(
            [draw.choice([0, 1, 2, 40, -1, 2**63 - 1]) for _ in range(draw.randrange(6))],
            dtype=torch.int64,
        )
        if choice in (5, 6):
            width = draw.choice([4, 4, 4, 3, 0])
            rows: Tensors = [(0, ids), (1, torch.ones(len(ids), width, dtype=torch.float64))]
            if draw.random() < 0.3:
                rows.append((2, torch.ones(draw.choice([len(ids), 3]), dtype=torch.int64)))
            return rows
        if choice == 7:
            return [(draw.choice([0, 7]), ids)]
        blocks = dense_specs(1)[0].blocks
        return [
            (draw.choice([number, number, 99]), torch.ones(block.shape, dtype=torch.float64))
            for number, block in enumerate(blocks)
            if draw.random() < 0.8
        ]

    def spec(self) -> Any:
        """Return the description of a table with something changed."""
        values: Any = draw_spec(self.draw).to_dict() | {
            "name": self.draw.choice(["dense", "n", ""])
        }
        for _ in range(self.draw.randrange(3)):
            key = self.draw.choice(list(values))
            values[key] = self.draw.choice([None, 0, -1, 2**40, "x", [], {}, [[]], 0.5, "\ud800"])
        return values

    def json(self, value: Any) -> Tensors:
        """Return any JSON value as a body, valid or not."""
        if isinstance(value, dict):
            return wire.json_body(value)
        text = self.draw.choice([b"[" * 5000, b"{", b"null", repr(value).encode()])
        return [(0, torch.frombuffer(bytearray(text), dtype=torch.uint8))]

    def damage(self, frames: list[list[bytearray]]) -> None:
        """Change, cut or add bytes."""
        for _ in range(self.draw.randrange(1, 5)):
            part = self.draw.choice(frames)
            frame = self.draw.choice(part)
            what = self.draw.random()
            if frame and what < 0.8:
                frame[self.draw.randrange(len(frame))] = self.draw.randrange(256)
            elif what < 0.9:
                del frame[self.draw.randrange(len(frame) + 1) :]
            else:
                frame.extend(bytes(self.draw.randrange(1, 100)))

    def finish(self) -> None:
        """Check that no request failed unexpectedly, and that the log replays to the same state."""
        handler = self.handler
        assert handler.unexpected == 0, f"{handler.unexpected} unexpected exceptions"
        tensors, meta = handler.state.capture()
        handler.close()
        again = RequestHandler(self.settings)
        try:
            found, same = again.state.capture()
        finally:
            again.close()
        # What was told about changed rows is not logged: after a restart it is told again.
        tables = {name for name in tensors if name.startswith("table.")}
        assert tables == {name for name in found if name.startswith("table.")}
        for name in tables:
            assert torch.equal(found[name].nan_to_num(), tensors[name].nan_to_num()), name
        assert {k: same[k] for k in ("tables", "applied")} == {
            k: meta[k] for k in ("tables", "applied")
        }


def draw_spec(draw: random.Random) -> Any:
    """Return the description of a small table."""
    return draw.choice([dense_specs(1)[0], sparse_spec()])


def resident() -> int:
    """Return the bytes of memory that this process occupies."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def main(count: int, seed: int) -> None:
    """Attack a server with so many messages, and report."""
    logging.disable(logging.WARNING)  # errors show what was unexpected
    with tempfile.TemporaryDirectory() as name:
        attacker = Attacker(random.Random(seed), Path(name))
        attacker.attack(min(count, 20_000))  # until tables and caches have their size
        before, begun = resident(), time.monotonic()
        for done in range(0, max(0, count - 20_000), 20_000):
            attacker.attack(20_000)
            if done % 100_000 == 0:
                grown = (resident() - before) / 2**20
                print(f"{done + 40_000} messages, {grown:+.1f} MiB", flush=True)
        grown = (resident() - before) / 2**20
        assert grown < 64, f"memory grew by {grown:.1f} MiB"
        attacker.finish()
        print(
            f"{count} messages in {time.monotonic() - begun:.0f} s, {attacker.out.sent} replies, "
            f"memory {grown:+.1f} MiB, no unexpected exception"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 100_000, int(sys.argv[2]) if sys.argv[2:] else 1)
