"""Where a job's parameter servers are: files in the folder in which they keep their state.

    layout.json       the servers that workers train with, replaced when tables have moved
    request.json      the number of servers that somebody asks for
    plan.json         the servers that take the tables over, which are starting
    refusal.json      why a request cannot be met
    handover-<n>/     what the servers of layout n - 1 hand over; whole once it has the file `whole`
    layout-<n>/       the state of the servers of layout n; those of layout 0 are beside it

Files are renamed into place. Training continues with the servers in `layout.json`, whatever else is
there: until it is replaced a move has not happened, and from then on it has.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

FILE = "layout.json"
_REQUEST, _PLAN, _REFUSAL, _WHOLE = "request.json", "plan.json", "refusal.json", "whole"
_LOCK = ".layout.lock"


@dataclass(frozen=True)
class ServerLayout:
    """The servers of a job at one time."""

    generation: int
    """How often tables have moved to another number of servers."""
    endpoints: tuple[str, ...]
    cut: int
    """The number of servers for which parameters were cut into blocks, at the start of the job."""
    workers: int = 1
    """The number of workers in the job."""


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
        """Note that the tables have moved."""
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
        if servers < 1:
            raise ValueError(f"a job has at least one server, not {servers}.")
        (self.path / _REFUSAL).unlink(missing_ok=True)
        self._write(_REQUEST, {"servers": servers})

    def take_request(self) -> int | None:
        """Return the number of servers that somebody asks for, once; None if nobody does."""
        found = self._read(_REQUEST)
        if found is None:
            return None
        (self.path / _REQUEST).unlink(missing_ok=True)
        return int(found["servers"])

    @property
    def is_asked(self) -> bool:
        """Whether a request waits to be taken."""
        return (self.path / _REQUEST).exists()

    def refuse(self, reason: str) -> None:
        """Say why a request cannot be met."""
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

    def remove_before(self, generation: int) -> None:
        """Remove what servers before a layout have kept, and what they have handed over to it."""
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
        return self.path / f"handover-{generation}"

    def _layout(self, name: str) -> ServerLayout | None:
        found = self._read(name)
        if found is None:
            return None
        return ServerLayout(**{**found, "endpoints": tuple(found["endpoints"])})

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self.path / name
        try:
            found = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ValueError(f"{path} is damaged: {error}.") from error
        if not isinstance(found, dict) or found.pop("crc32", None) != _crc(found):
            raise ValueError(f"{path} is damaged: it does not match its checksum.")
        return found

    def _write(self, name: str, value: dict[str, Any]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        temporary = self.path / f".{name}.{secrets.token_hex(6)}"
        with temporary.open("w", encoding="utf-8") as file:
            json.dump({**value, "crc32": _crc(value)}, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path / name)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.path / _LOCK).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def mark_whole(handover: Path) -> None:
    """Note that all servers have handed over."""
    (handover / _WHOLE).touch()


def mark_ready(handover: Path, server: int) -> None:
    """Note that a server has started and waits for what it takes over."""
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


def _to_json(layout: ServerLayout) -> dict[str, Any]:
    return {**asdict(layout), "endpoints": list(layout.endpoints)}


def _crc(value: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(value, sort_keys=True).encode())
