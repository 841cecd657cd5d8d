"""The addresses of a job's parameter servers: files in the folder of their state.

    layout.json       the servers that workers train with, replaced when tables have moved
    request.json      the number of servers that somebody asks for, until they are up
    plan.json         the servers that take the tables over, which are up
    refusal.json      why a request cannot be met
    handover-<n>/     what the servers of layout n - 1 hand over; `whole` names their number
    layout-<n>/       the state of the servers of layout n; those of layout 0 are beside it

Files are renamed into place and checked field by field when they are read. Training continues with
the servers in `layout.json`, whatever else is there: until it is replaced a move has not happened.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fleetx.runtime import network

FILE = "layout.json"
MOST_SERVERS = 1000
"""The servers of a job: each has connections to all workers."""
_REQUEST, _PLAN, _REFUSAL, _WHOLE = "request.json", "plan.json", "refusal.json", "whole"
_LOCK = ".layout.lock"
# The bytes of a file: an address for each of the servers, with room.
_LONGEST = 1 << 20


@dataclass(frozen=True)
class ServerLayout:
    """The servers of a job at one time."""

    generation: int
    """How often tables have moved to another number of servers."""
    endpoints: tuple[str, ...]
    cut: int
    """The number of servers for which parameters were split into blocks, at the start of the
    job.
    """
    workers: int = 1
    """The number of workers in the job."""

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> ServerLayout:
        """Parse a file; raise ValueError for invalid content."""
        if record.keys() != {"generation", "endpoints", "cut", "workers"}:
            raise ValueError(f"its fields are {sorted(record)}")
        least = {"generation": 0, "cut": 1, "workers": 1}
        wrong = [name for name in least if not _is_count(record[name], least[name])]
        if wrong:
            raise ValueError(f"{wrong[0]} is {record[wrong[0]]!r:.100}")
        return cls(**{**record, "endpoints": checked_endpoints(record["endpoints"])})


class LayoutFolder:
    """The files of one job."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder)

    def read(self) -> ServerLayout | None:
        """Return the servers that workers train with; None if no launcher has written them."""
        return self._layout(FILE)

    def write(self, layout: ServerLayout) -> None:
        """Replace the servers that workers train with."""
        self._write(FILE, _to_json(layout))

    def read_plan(self) -> ServerLayout | None:
        """Return the servers that take over; None if tables do not move."""
        return self._layout(_PLAN)

    def write_plan(self, layout: ServerLayout) -> None:
        """Announce the servers that take over."""
        self._write(_PLAN, _to_json(layout))

    def drop_plan(self) -> None:
        """Record that the tables have moved."""
        (self.path / _PLAN).unlink(missing_ok=True)

    def move_address(self, index: int, endpoint: str) -> ServerLayout:
        """Give one server another address; return the new layout."""
        with self._locked():
            layout = self.read()
            if layout is None:
                raise FileNotFoundError(f"{self.path / FILE} is not there.")
            if not 0 <= index < len(layout.endpoints):
                raise ValueError(
                    f"there is no server {index}: the job has {len(layout.endpoints)}, from 0."
                )
            endpoints = list(layout.endpoints)
            endpoints[index] = endpoint
            layout = replace(layout, endpoints=tuple(endpoints))
            self.write(layout)
        return layout

    def ask_for(self, servers: int) -> None:
        """Ask for another number of servers."""
        if not 1 <= servers <= MOST_SERVERS:
            raise ValueError(f"a job has from 1 to {MOST_SERVERS} servers, not {servers}.")
        with self._locked():
            (self.path / _REFUSAL).unlink(missing_ok=True)
            self._write(_REQUEST, {"servers": servers})

    def wanted(self) -> int | None:
        """Return the requested number of servers; None without a request."""
        found = self._read(_REQUEST)
        if found is None:
            return None
        count: Any = found.get("servers")
        if not _is_count(count, 1) or count > MOST_SERVERS:
            raise ValueError(f"{self.path / _REQUEST} is damaged: it asks for {count!r:.100}.")
        return int(count)

    def settle(self, servers: int | None) -> None:
        """Remove a request for so many servers, or one that cannot be read; a newer one stays."""
        with self._locked():
            try:
                is_newer = self.wanted() not in (None, servers)
            except ValueError:
                is_newer = False
            if not is_newer:
                (self.path / _REQUEST).unlink(missing_ok=True)

    def interrupt(self) -> None:
        """Make a request of a plan whose servers are gone: their launcher has ended.

        Workers may have announced the move already and wait for its plan, but must not find these.
        """
        plan, layout = self.read_plan(), self.read()
        if plan is not None and layout is not None and plan.generation > layout.generation:
            self.ask_for(len(plan.endpoints))
        self.drop_plan()

    def refuse(self, reason: str) -> None:
        """Write why a request cannot be met."""
        self._write(_REFUSAL, {"reason": reason})

    def refusal(self) -> str | None:
        """Return why the last request could not be met."""
        found = self._read(_REFUSAL)
        return None if found is None else str(found["reason"])

    def remove(self) -> None:
        """Remove all files, and the states of servers that tables have moved to."""
        for name in (FILE, _REQUEST, _PLAN, _REFUSAL, _LOCK):
            (self.path / name).unlink(missing_ok=True)
        for folder in (*self.path.glob("handover-*"), *self.path.glob("layout-*")):
            shutil.rmtree(folder, ignore_errors=True)

    def make_room(self, generation: int) -> None:
        """Remove the files of an interrupted move to a layout."""
        for folder in (self.handover(generation), self._base(generation)):
            shutil.rmtree(folder, ignore_errors=True)

    def forget(self, state: Path) -> None:
        """Remove the state of one server, and the folder of its layout if it was the last."""
        shutil.rmtree(state, ignore_errors=True)
        if state.parent != self.path:
            with contextlib.suppress(OSError):  # other servers' states are there
                state.parent.rmdir()

    def remove_before(self, generation: int) -> None:
        """Remove the state of the servers before a layout, and what they have handed over to it."""
        for number in range(generation):
            states = [*self.path.glob("server-*")] if number == 0 else [self._base(number)]
            for folder in (*states, self.handover(number + 1)):
                shutil.rmtree(folder, ignore_errors=True)

    def _base(self, generation: int) -> Path:
        return self.path / f"layout-{generation}" if generation else self.path

    def state_of(self, generation: int, server: int) -> Path:
        """Return where a server of a layout keeps its state."""
        return self._base(generation) / f"server-{server}"

    def handover(self, generation: int) -> Path:
        """Return where the servers before a layout leave what they hand over."""
        return self.path / _handover(generation)

    def _layout(self, name: str) -> ServerLayout | None:
        found = self._read(name)
        if found is None:
            return None
        try:
            return ServerLayout.from_json(found)
        except ValueError as error:
            raise ValueError(f"{self.path / name} is damaged: {error}.") from error

    def _read(self, name: str) -> dict[str, Any] | None:
        return _read_json(self.path / name)

    def _write(self, name: str, value: dict[str, Any]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        _write_json(self.path / name, value)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / _LOCK).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _handover(generation: int) -> str:
    return f"handover-{generation}"


def is_handover(folder: Path, generation: int) -> bool:
    """Return whether a folder can be that of a handover to a layout."""
    try:
        is_there = folder.parent.is_dir()
    except OSError:  # a name that is too long
        return False
    return is_there and folder.is_absolute() and folder.name == _handover(generation)


def mark_whole(handover: Path, servers: int) -> None:
    """Record that all servers, and how many, have handed over."""
    _write_json(handover / _WHOLE, {"servers": servers})


def handed_over(handover: Path) -> int:
    """Return the number of servers that have handed over; raise ValueError if it is unknown."""
    found = _read_json(handover / _WHOLE) or {}
    count: Any = found.get("servers")
    if not _is_count(count, 1) or count > MOST_SERVERS:
        raise ValueError(f"{handover / _WHOLE} is damaged: it names {count!r:.100} servers.")
    return int(count)


def mark_ready(handover: Path, server: int) -> None:
    """Record that a server has started and waits for the state to take over."""
    handover.mkdir(parents=True, exist_ok=True)
    (handover / f"ready-{server}").touch()


def are_ready(handover: Path, servers: int) -> bool:
    """Return whether all servers that take over have started."""
    return all((handover / f"ready-{server}").exists() for server in range(servers))


def is_whole(handover: Path) -> bool:
    """Return whether all servers have handed over."""
    return (handover / _WHOLE).exists()


def find_layout_folder(folder: str | os.PathLike[str]) -> LayoutFolder:
    """Return the files of a running job, by its --server_state or --log_dir."""
    path = Path(folder)
    found = [p.parent for p in (path / FILE, *sorted(path.glob(f"serverstate-*/{FILE}")))
             if p.is_file()]  # fmt: skip
    if len(found) != 1:
        raise FileNotFoundError(
            f"{path} has {'no' if not found else 'more than one'} {FILE}: name the --log_dir or "
            "the --server_state of a running job whose servers keep their state."
        )
    return LayoutFolder(found[0])


def checked_endpoints(value: Any) -> tuple[str, ...]:
    """Return the servers' addresses in a file or a message; raise ValueError for anything else."""
    if not isinstance(value, (list, tuple)) or not 1 <= len(value) <= MOST_SERVERS:
        raise ValueError(f"the addresses are {value!r:.100}")
    for endpoint in value:
        if not isinstance(endpoint, str):
            raise ValueError(f"{endpoint!r:.100} is not an address")
        network.split_endpoint(endpoint)
    if len(set(value)) < len(value):
        raise ValueError("an address is listed twice")
    return tuple(value)


def _is_count(value: Any, least: int) -> bool:
    return type(value) is int and least <= value < 1 << 62  # true is no number


def _to_json(layout: ServerLayout) -> dict[str, Any]:
    return {**asdict(layout), "endpoints": list(layout.endpoints)}


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        with path.open("rb") as file:
            text = file.read(_LONGEST + 1)
    except FileNotFoundError:
        return None
    if len(text) > _LONGEST:
        raise ValueError(f"{path} is damaged: it has more than {_LONGEST} bytes.")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}.") from error
    if not isinstance(found, dict) or found.pop("crc32", None) != _crc(found):
        raise ValueError(f"{path} is damaged: it does not match its checksum.")
    return found


def _write_json(path: Path, value: dict[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump({**value, "crc32": _crc(value)}, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _crc(value: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(value, sort_keys=True).encode())
