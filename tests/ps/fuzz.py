"""Hostile frames against a server's request handler, without sockets.

    PYTHONPATH=tests python tests/ps/fuzz.py 1000000 [seed]

A stranger and a worker that lies send messages made by the wire's grammar (`fuzz_frames`). Messages
that reach lines of the server that none has reached before are kept and changed further. Sessions
stay alive: what a lie has displaced says hello again, and a server that was told to stop starts
again from its log, which must restore the same state. Whatever comes, the handler answers or
ignores it, no exception is unexpected, and memory stays bounded.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import logging
import multiprocessing
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from fuzz_frames import WORKERS, Grammar, Identity, Recipe, frames_of
from fuzz_watching import Lines, Outbox, Watched
from training import dense_specs, sparse_spec

from fleetx.ps.server.request_handler import RequestHandler
from fleetx.ps.server.server_settings import ServerSettings
from fleetx.ps.server.snapshots import Durability
from fleetx.ps.tables.make_table import create_table
from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import parts
from fleetx.ps.wire.messages import Header, Kind, Problem

ROUTES = {0: b"honest", 1: b"liar", 2: b"stranger"}
MOST_GROWTH = 64 << 20
"""The bytes that a server's memory may grow by."""
PROCESSES = 2
ROUNDS = 5
_TRACED = 8
_MOST_KEPT = 400
_TABLES = 24
# They end a server, which has to start again.
_ENDING = (Kind.STOP, Kind.FINISH)
_LONGEST_LIFE = 20_000


class Attacker:
    """A server without a socket, and the frames that are thrown at it.

    With `guided`, frames that reach new lines are kept and varied. That needs `sys.settrace`, under
    which CPython 3.11 was seen to hang at the start of a handler of SIGCHLD: tests, in whose
    process children end, do without.
    """

    def __init__(self, draw: random.Random, folder: Path, *, guided: bool = False) -> None:
        self.draw = draw
        self._guided = guided
        self._folder = folder
        self._grammar = Grammar(draw, folder)
        self._kept: list[Recipe] = []
        self.lines = Lines()
        self.reached: Counter[tuple[Kind, str]] = Counter()
        """How often each kind of message had which outcome."""
        self.outcomes: Counter[str] = Counter()
        """Why messages were refused."""
        self.frames = self.restarts = self.servers = 0
        self.out = Outbox()
        self._new_server()

    def _new_server(self) -> None:
        """Start a server with an empty folder, and two tables."""
        self.servers += 1
        self.settings = ServerSettings(
            workers=WORKERS,
            durability=Durability(
                folder=self._folder / f"server{self.servers}", snapshot_bytes=200_000
            ),
            lease=1e9,  # nobody is given up for being silent
            worker_wait=1e9,
        )
        self._start()
        for spec in (dense_specs(1)[0], sparse_spec()):
            sender = self._identity(0)
            header = Header(
                Kind.CREATE,
                incarnation=sender.incarnation,
                epoch=sender.epoch,
                sequence=sender.due,
            )
            self.send(0, parts(header, wire.json_body(spec.to_dict())))

    def _start(self) -> None:
        self.handler = Watched(self.settings)
        self.handler.connect(self.out)
        self._incarnations = dict.fromkeys(range(WORKERS), 5)
        self._requests = 0
        self._born = self.frames
        for worker in range(WORKERS):
            self._hello(worker)

    def _hello(self, worker: int) -> None:
        body = wire.json_body({"workers": WORKERS, "process": 1, "host": "x"})
        header = Header(Kind.HELLO, worker=worker, incarnation=self._incarnations[worker])
        self.send(worker, parts(header, body))

    def _identity(self, worker: int) -> Identity:
        state = self.handler.state
        self._requests += 8
        return Identity(
            worker,
            self._incarnations[worker],
            self.handler.epoch,
            state.applied.get(worker, 0) + 1,
            state.sync.version,
            state.barriers_passed + 1,
            self._requests % 100_000,
        )

    def send(self, worker: int, messages: list[Any]) -> None:
        """Give the frames of all parts of a message to the server."""
        for frames in messages:
            contents = [memoryview(bytearray(frame)) for frame in frames]
            self.handler.receive(ROUTES[worker], contents)

    def attack(self, count: int) -> None:
        """Send so many frames; lawful messages that keep the job going are not counted."""
        draw, end = self.draw, self.frames + count
        while self.frames < end:
            if self._kept and draw.random() < 0.25:
                recipe = self._grammar.changed(draw.choice(self._kept))
            else:
                recipe = self._grammar.recipe()
            sent = frames_of(recipe, self._identity(1))
            if draw.random() < 0.15:
                self._grammar.damage(sent)
            peer = 2 if draw.random() < 0.2 else 1
            if self._guided and self.frames % _TRACED == 0:
                with self.lines.traced():
                    self._throw(peer, sent)
                if self.lines.found_new() and recipe.kind not in _ENDING:
                    self._kept.append(recipe)
                    del self._kept[:-_MOST_KEPT]
            else:
                self._throw(peer, sent)
            self._keep_going()

    def _throw(self, peer: int, messages: list[Any]) -> None:
        handler, out = self.handler, self.out
        for frames in messages:
            self.frames += 1
            handler.passed = out.newest = None
            handler.receive(ROUTES[peer], [memoryview(frame) for frame in frames])
            self._count(handler.passed, out.newest)

    def _count(self, passed: Header | None, reply: Header | None) -> None:
        problem = Problem(reply.problem) if reply is not None else Problem.NONE
        if passed is None:
            self.outcomes["part kept" if reply is None else f"wire: {problem.name}"] += 1
            return
        if passed.kind == Kind.HELLO and reply is not None and reply.kind == Kind.WELCOME:
            self._incarnations[passed.worker] = passed.incarnation
        if problem in (Problem.NEED_HELLO, Problem.OLD_INCARNATION):
            outcome = "no session"
        elif reply is None:
            outcome = "waits"
        else:
            outcome = "refused" if reply.kind == Kind.ERROR else "done"
            if reply.kind == Kind.ERROR:
                self.outcomes[f"handler: {problem.name}"] += 1
        self.reached[passed.kind, outcome] += 1

    def _keep_going(self) -> None:
        """Let the honest worker take part, and restart what was told to stop."""
        draw, handler = self.draw, self.handler
        if draw.random() < 0.05:
            handler.tick()
            me = self._identity(0)
            kind = draw.choice([Kind.COMMIT, Kind.COMMIT, Kind.NORM, Kind.ARRIVE])
            step = me.barrier if kind == Kind.ARRIVE else me.version
            header = Header(
                kind,
                incarnation=me.incarnation,
                epoch=me.epoch,
                sequence=me.due,
                step=step,
                norm=1.0,
            )
            self.send(0, parts(header, []))
        if self.frames % 512 < 4:  # a restarted worker: what its last process waited for is gone
            for worker, known in self._incarnations.items():
                self._incarnations[worker] = min(known + 1, 2**64 - 1)
                self._hello(worker)
        if len(handler.state.finished) == WORKERS or len(handler.state.tables) > _TABLES:
            self.finish()
            self._new_server()
        elif handler.ends_at is not None or self.frames - self._born > _LONGEST_LIFE:
            self.finish()
            self.restarts += 1
            self._start()

    def finish(self) -> None:
        """Check that no request failed unexpectedly, and that the log replays to the same state."""
        handler = self.handler
        tensors, meta = handler.state.capture()
        handler.close()
        assert handler.unexpected == 0, f"{handler.unexpected} unexpected exceptions"
        assert handler.failure is None, handler.failure
        assert not self.out.failed, self.out.failed[-1]
        again = RequestHandler(self.settings)
        try:
            found, same = again.state.capture()
        finally:
            again.close()
        tables, expected = sorted_rows(found), sorted_rows(tensors)
        assert list(tables) == list(expected)
        for name, value in expected.items():
            assert torch.equal(tables[name].nan_to_num(), value.nan_to_num()), name
        assert repr({name: same[name] for name in meta}) == repr(meta)  # repr: NaN equals itself

    def result(self, *, grown: int) -> Result:
        """Return what messages reached, and by how much memory grew."""
        lines = {(code.co_filename, line) for code, line in self.lines.seen}
        counts = Counter({"restarts": self.restarts, "servers": self.servers})
        counts |= Counter({"frames": self.frames, "replies": self.out.sent})
        return Result(self.reached, self.outcomes, lines, counts, grown)


@dataclasses.dataclass
class Result:
    """What one attack reached."""

    reached: Counter[tuple[Kind, str]]
    outcomes: Counter[str]
    lines: set[tuple[str, int]]
    counts: Counter[str]
    grown: int

    def __add__(self, other: Result) -> Result:
        """Return what both attacks reached."""
        return Result(
            self.reached + other.reached,
            self.outcomes + other.outcomes,
            self.lines | other.lines,
            self.counts + other.counts,
            max(self.grown, other.grown),
        )

    def __str__(self) -> str:
        columns = ("done", "waits", "refused", "no session")
        lines = [f"{'handler':10}" + "".join(f"{name:>12}" for name in columns)]
        for kind in Kind:
            found = [self.reached[kind, name] for name in columns]
            lines.append(f"{kind.name:10}" + "".join(f"{count:12}" for count in found))
        lines += [f"{name}: {count}" for name, count in sorted(self.outcomes.items())]
        inside = sum(n for (_, outcome), n in self.reached.items() if outcome != "no session")
        counts = self.counts
        lines.append(
            f"{inside} of {counts['frames']} frames ({inside / counts['frames']:.0%}) reached a "
            f"handler; {len(self.lines)} lines of fleetx.ps; {counts['servers']} servers, "
            f"{counts['restarts']} restarts from their logs"
        )
        return "\n".join(lines)


def sorted_rows(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors of tables, rows in the order of their ids, and those of the step.

    Where rows are may differ. What was told about changed rows is not logged: after a restart it
    is told again.
    """
    found = {}
    for name in sorted(name for name in tensors if name.startswith(("table.", "step."))):
        ids, value = tensors.get(f"{name.rpartition('.')[0]}.ids"), tensors[name]
        is_per_row = ids is not None and value.dim() > 0 and len(value) == len(ids)
        found[name] = value[ids.argsort()] if is_per_row else value
    return found


def resident(pid: int | str = "self") -> int:
    """Return the bytes of memory that a process occupies."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def attack(count: int, seed: int) -> Result:
    """Attack a server with so many frames."""
    logging.disable(logging.WARNING)  # errors show what was unexpected
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        attacker = Attacker(random.Random(seed), Path(name), guided=True)
        # torch's optimizers load its compiler, which a server does for the first such table.
        create_table(dense_specs(1, "torch.Adam")[0])
        attacker.attack(min(count, 2000))
        start = most = resident()
        while attacker.frames < count:
            attacker.attack(min(10_000, count - attacker.frames))
            most = max(most, resident())
        attacker.finish()
        return attacker.result(grown=most - start)


def main(count: int, seed: int) -> None:
    """Attack with so many frames in several processes, each with a server, and report."""
    begun = time.monotonic()
    starter = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(PROCESSES, starter) as pool:
        share = -(-count // (PROCESSES * ROUNDS))
        seeds = range(seed * 1000, seed * 1000 + PROCESSES * ROUNDS)
        found = None
        for result in pool.map(attack, [share] * len(seeds), seeds):
            found = result if found is None else found + result
            print(f"fuzz: {found.counts['frames']} of {count} frames", flush=True)
    print(found)
    assert found.grown < MOST_GROWTH, f"memory grew by {found.grown / 2**20:.1f} MiB"
    print(
        f"fuzz: {found.counts['frames']} frames in {time.monotonic() - begun:.0f} s, "
        f"{found.counts['replies']} replies, memory of a server at most {found.grown / 2**20:+.1f} "
        f"MiB, no unexpected exception, every log replayed to the same state (seed {seed})"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 1_000_000, int(sys.argv[2]) if sys.argv[2:] else 1)
