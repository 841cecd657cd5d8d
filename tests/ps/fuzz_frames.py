"""Frames made by the wire's grammar: right ones, wrong ones, and ones with bytes changed.

A `Recipe` is a message without its identity: kind, body, and the header fields that lie. Frames are
made of it when it is sent, with the numbers that a server expects at that moment, so that a message
gets as far as its lies let it. Bodies come from pools that are renewed piece by piece: encoding a
body costs more than handling it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from training import dense_specs, sparse_spec

from fleetx.ps.tables.table_spec import DENSE_OPTIMIZERS, SPARSE_OPTIMIZERS
from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import Tensors
from fleetx.ps.wire.messages import Flag, Header, Kind

WORKERS = 2
WEIGHTS = {
    Kind.PUSH: 6, Kind.ADD: 3, Kind.SET: 1, Kind.PULL: 5, Kind.CHANGED: 2, Kind.COMMIT: 2,
    Kind.NORM: 1, Kind.ARRIVE: 1, Kind.WAIT: 1, Kind.CLOCK: 1, Kind.SAVE: 0.1, Kind.LOAD: 0.1,
    Kind.CREATE: 0.5, Kind.HELLO: 1, Kind.HEARTBEAT: 1, Kind.STATUS: 1, Kind.FINISH: 0.02,
    Kind.STOP: 0.005, Kind.WELCOME: 0.1, Kind.PULSE: 0.1, Kind.VOID: 0.1, Kind.DONE: 0.1,
    Kind.ERROR: 0.1, Kind.MOVE: 0.05, Kind.HAND_OVER: 0.1,
}  # fmt: skip
"""How often each kind is sent; those that end a server rarely, since it has to be restarted."""
_KINDS = list(WEIGHTS)
_WITH_JSON = (
    *(Kind.HELLO, Kind.CREATE, Kind.WAIT, Kind.SAVE, Kind.LOAD, Kind.ARRIVE, Kind.MOVE),
    Kind.HAND_OVER,
)
_POOL = 60
_EDGES = [0, 1, 2, 127, 128, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]
_FLAGS = [Flag.JSON, Flag.SYNC, Flag.SHARED, Flag.CLOCKED, Flag.HELD, Flag.FETCH]
_CONDITIONS: list[Any] = [
    {"version": 0}, {"version": 10**30}, {"squares": 1}, {"squares": -(10**30)}, {"barrier": 1},
    {"barrier": []}, {"barrier": [], "version": 0}, {"values": "dense"}, {"values": 3}, {},
    {"version": None}, {"version": True}, [], "x", None,
]  # fmt: skip

Body = tuple[bytes, bytes]
"""The frames of descriptors and of data."""
Frames = list[bytearray]


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A message without its identity."""

    kind: Kind
    body: Body
    flags: Flag = Flag.NONE
    table: int = 0
    lies: tuple[tuple[str, Any], ...] = ()
    """Header fields that differ from what the server expects."""
    pieces: int = 1
    """How many parts the body is cut into."""


@dataclasses.dataclass
class Identity:
    """What a server expects of a worker's next message."""

    worker: int
    incarnation: int
    epoch: int
    due: int = 1
    """The sequence number of its next change."""
    version: int = 0
    """The step that is due …"""
    barrier: int = 1
    """… and the barrier."""
    request: int = 0


def encoded(tensors: Tensors) -> Body:
    """Return the frames of a body."""
    specs = wire.lay_out(tensors)
    data = bytearray(wire.body_size(specs))
    for spec, (_, tensor) in zip(specs, tensors, strict=True):
        data[spec.offset : spec.offset + spec.size] = wire.as_bytes(tensor)
    return wire.pack_specs(specs), bytes(data)


def frames_of(recipe: Recipe, sender: Identity) -> list[Frames]:
    """Return the parts of a message as they are sent now."""
    specs, data = recipe.body
    sender.request += 1
    header = Header(
        recipe.kind,
        flags=recipe.flags,
        worker=sender.worker,
        incarnation=sender.incarnation,
        epoch=sender.epoch,
        request=sender.request,
        sequence=sender.due,
        table=recipe.table,
        step=sender.barrier if recipe.kind == Kind.ARRIVE else sender.version,
        total=len(data),
        parts=recipe.pieces,
    )
    for name, value in recipe.lies:
        setattr(header, name, value)
    if recipe.pieces == 1:
        return [[bytearray(header.pack()), bytearray(specs), bytearray(data)]]
    found: list[Frames] = []
    lying = dict(recipe.lies)
    for number in range(recipe.pieces):
        start, end = (len(data) * n // recipe.pieces for n in (number, number + 1))
        header.part, header.offset = number, lying.get("offset", start)
        described = specs if number == 0 else b""
        found.append([bytearray(header.pack()), bytearray(described), bytearray(data[start:end])])
    return found


class Grammar:
    """Makes recipes, and changes them and their bytes."""

    def __init__(
        self,
        draw: random.Random,
        folder: Path,
        *,
        kinds: Sequence[Kind] = (),
        workers: int = WORKERS,
    ) -> None:
        self.draw = draw
        self._workers = workers
        self._folder = folder
        self._kinds = [kind for kind in _KINDS if not kinds or kind in kinds]
        self._shares = [WEIGHTS[kind] for kind in self._kinds]
        self._pools: dict[tuple[Kind, bool], list[Body]] = {}

    def recipe(self) -> Recipe:
        """Return a new message: its kind, table and body fit each other most of the time."""
        draw = self.draw
        kind = draw.choices(self._kinds, self._shares)[0]
        flags = Flag.NONE
        if kind in (Kind.PUSH, Kind.PULL) and draw.random() < 0.4:
            flags = draw.choice([Flag.SYNC, Flag.FETCH, Flag.SYNC | Flag.FETCH, Flag.CLOCKED])
        if kind in _WITH_JSON:
            flags = Flag.JSON
        pieces = draw.randrange(2, 6) if draw.random() < 0.03 else 1
        table = draw.choice([0, 0, 0, 0, 1, 1, 1, 1, 2, 3, 4, 5, 6, 7])
        has_rows = table == 1 or (table > 1 and draw.random() < 0.5)
        found = Recipe(kind, self._body(kind, has_rows=has_rows), flags, table, pieces=pieces)
        return self.changed(found) if draw.random() < 0.4 else found

    def changed(self, recipe: Recipe) -> Recipe:
        """Return a message with one more lie, another body, or other flags."""
        draw = self.draw
        what = draw.randrange(6)
        if what == 0:
            return dataclasses.replace(
                recipe, body=self._body(draw.choice(self._kinds), has_rows=draw.random() < 0.5)
            )
        if what == 1:
            return dataclasses.replace(recipe, flags=recipe.flags ^ draw.choice(_FLAGS))
        if what == 2:
            return dataclasses.replace(recipe, table=draw.choice([0, 1, 2, 3, 4, 99, 2**32 - 1]))
        return dataclasses.replace(recipe, lies=(*recipe.lies[-2:], self._lie()))

    def _lie(self) -> tuple[str, Any]:
        draw = self.draw
        lies: dict[str, list[Any]] = {
            "worker": [0, 1, 2, 2**32 - 1],
            "incarnation": [0, 4, 2**64 - 1],
            "epoch": [0, 2**64 - 1],
            "sequence": [0, 1, 2, 2**64 - 1],
            "step": [-1, 0, 1, 2**62, -(2**63), 2**63 - 1],
            "rate": [0.1, 0.0, -1.0, float("inf"), 1e308],
            "norm": [1.0, 0.0, -1.0, float("inf")],
            "reply_room": [1, 1 << 40],
            "reply_offset": [1, 64, 2**64 - 1],
            "total": [0, 1, 10**6, 2**63],
            "offset": [0, 1, 64, 2**63],
            "parts": [0, 2, 2**32 - 1],
            "part": [1, 2**32 - 1],
            "problem": [12, 2**16 - 1],
            "attempt": [1, 2**16 - 1],
        }
        name = draw.choice(list(lies))
        return name, draw.choice(lies[name])

    def damage(self, parts: list[Frames]) -> None:
        """Change, cut, add, exchange or repeat bytes, frames and parts."""
        draw = self.draw
        for _ in range(draw.randrange(1, 4)):
            frame = draw.choice(draw.choice(parts))
            what = draw.random()
            if frame and what < 0.6:
                frame[draw.randrange(len(frame))] = draw.choice([0, 1, 127, 128, 255, 0x22, 0x5B])
            elif len(frame) >= 8 and what < 0.85:
                size = draw.choice([4, 8])
                at = draw.randrange(len(frame) - size + 1) & ~3
                edge = draw.choice(_EDGES) & (2 ** (8 * size) - 1)
                frame[at : at + size] = edge.to_bytes(size, "little")
            elif what < 0.92:
                del frame[draw.randrange(len(frame) + 1) :]
            else:
                frame.extend(draw.randbytes(draw.randrange(1, 100)))
        if draw.random() < 0.1:
            part = draw.choice(parts)
            draw.choice([part.reverse, part.pop, lambda: part.append(part[0])])()
        if draw.random() < 0.2:
            draw.shuffle(parts)

    def _body(self, kind: Kind, *, has_rows: bool) -> Body:
        """Return a body that fits the kind, from a pool; one use in thirty replaces a body."""
        pool = self._pools.setdefault((kind, has_rows), [])
        if len(pool) < _POOL:
            pool.append(encoded(self._new_body(kind, has_rows)))
            return pool[-1]
        place = self.draw.randrange(_POOL)
        if self.draw.random() < 1 / 30:
            pool[place] = encoded(self._new_body(kind, has_rows))
        return pool[place]

    def _new_body(self, kind: Kind, has_rows: bool) -> Tensors:
        draw = self.draw
        match kind:
            case Kind.WAIT:
                return self._json(draw.choice(_CONDITIONS))
            case Kind.HELLO:
                return self._json(self._hello())
            case Kind.SAVE | Kind.LOAD:
                place = str(self._folder / "save")
                path = draw.choice([place, place, "", 3, None, "\0", "/proc/none/x", "x" * 5000])
                return self._json({"path": path, "token": draw.choice(["t", "../x", 4, "\0"])})
            case Kind.MOVE:
                return self._json({"generation": draw.choice([1, 1, 2, 0, True, "1", 10**30])})
            case Kind.HAND_OVER:
                place = str(self._folder / "handover-1")
                long = f"/{'x' * 5000}/handover-1"
                wrong = draw.choice(["", 3, "\0", "\ud800", "/proc/x", "handover-1", long])
                return self._json({"path": draw.choice([place, place, wrong])})
            case Kind.CREATE:
                return self._json(self._spec())
            case Kind.ARRIVE:
                return (
                    self._json({"note": draw.choice([1, "x", [[]]])}) if draw.randrange(2) else []
                )
            case Kind.PUSH | Kind.ADD | Kind.SET:
                return self._rows() if has_rows else self._blocks()
            case Kind.PULL:
                return [(draw.choice([0, 7]), self._ids())] if has_rows or draw.randrange(2) else []
            case _:
                return draw.choice([[], [], [], self._rows()])

    def _hello(self) -> Any:
        draw = self.draw
        shared = {"process": draw.choice([1, -1, "x", 2**70]), "descriptor": 3, "bytes": 10}
        return {
            "workers": draw.choice([self._workers] * 3 + [0, "2"]),
            "shared": draw.choice([None, shared, [], shared | {"token": "zz"}]),
            "clock": draw.choice([0, 10**40, None, []]),
            "process": draw.choice([1, "x" * 5000]),
            "host": "h",
        }

    def _ids(self) -> torch.Tensor:
        draw = self.draw
        known = [0, 1, 2, 40, -1, 2**63 - 1]
        return torch.tensor([draw.choice(known) for _ in range(draw.randrange(6))]).long()

    def _values(self, *shape: int) -> torch.Tensor:
        fill = self.draw.choice([1.0, 0.0, -1e308, float("nan"), float("inf"), 1e-300])
        dtype = torch.float32 if self.draw.random() < 0.1 else torch.float64
        return torch.full(shape, fill, dtype=torch.float64).to(dtype)

    def _rows(self) -> Tensors:
        ids, draw = self._ids(), self.draw
        rows: Tensors = [(0, ids), (1, self._values(len(ids), draw.choice([4, 4, 4, 4, 3, 0])))]
        if draw.random() < 0.3:
            count = draw.choice([len(ids), len(ids), 3])
            rows.append((2, torch.full((count,), draw.choice([1, 0, -5, 2**62]))))
        return rows

    def _blocks(self) -> Tensors:
        draw = self.draw
        return [
            (number if draw.random() < 0.9 else 99, self._values(*block.shape))
            for number, block in enumerate(dense_specs(1)[0].blocks)
            if draw.random() < 0.8
        ]

    def _spec(self) -> Any:
        """Return the description of a table with something changed, at any depth."""
        draw = self.draw
        name = draw.choice(["dense", "rows", "../x", *(f"t{n}" for n in range(30))])
        clip = draw.choice(["", "", "+clip"])
        values: Any
        if draw.randrange(2):
            optimizer = draw.choice([*DENSE_OPTIMIZERS, "torch.Adam", "torch.SGD"])
            values = dense_specs(1, optimizer + clip)[0].to_dict() | {"name": name}
        else:
            values = sparse_spec(draw.choice(SPARSE_OPTIMIZERS) + clip).to_dict() | {"name": name}
            values["entry"] = draw.choice(
                [None, None, {"kind": "count", "value": 2}, {"kind": "probability", "value": 0.5}]
            )
            eviction = {"max_unseen": 5, "min_score": 0.5, "score_decay": 0.9, "max_bytes": 2000}
            eviction["every"] = 3
            values["eviction"] = draw.choice([None, None, eviction])
        for _ in range(draw.randrange(3)):
            place = values
            key: Any = draw.choice(list(place))
            while isinstance(place[key], dict | list) and place[key] and draw.randrange(3):
                place = place[key]
                key = draw.choice(list(place) if isinstance(place, dict) else range(len(place)))
            place[key] = draw.choice(
                [None, 0, -1, 2**40, "x", [], {}, [[]], 0.5, "\ud800", 1e400, True, "adam"]
            )
        return values

    def _json(self, value: Any) -> Tensors:
        """Return any JSON value as a body, valid or not."""
        with contextlib.suppress(ValueError):
            if isinstance(value, dict):
                return wire.json_body(value)
        text = self.draw.choice([b"[" * 5000, b"{", b"null", b"\xff", repr(value).encode()])
        return [(0, torch.frombuffer(bytearray(text), dtype=torch.uint8))]
