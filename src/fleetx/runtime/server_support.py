"""Settings that a process of a server job receives from its launcher, besides its place in the job.

    FLEETX_SERVER_KEYS              a file with the job's keys (by default, on loopback, the user's)
    FLEETX_SERVER_INSECURE          1: servers listen without keys
    FLEETX_SERVER_STATE             the folder in which this server keeps its state for a restart
    FLEETX_SERVER_FSYNC             none, interval or always: when its log is flushed to disk
    FLEETX_SERVER_SNAPSHOT_SECONDS  the time between two snapshots
    FLEETX_SERVER_MEMORY            the memory for rows of tables, such as 8G; others are on disk
    FLEETX_SERVER_SPILL             the folder for those (by default that of the state, or of /tmp)
    FLEETX_SERVER_TAKE_OVER         where the servers before this one hand over their state
    FLEETX_SERVER_LAYOUT            the folder that says where the servers are (layout_folder.py)
    FLEETX_SERVER_ELASTIC           1: asynchronous training continues without lost workers
    FLEETX_WORKER_WAIT              how many seconds servers wait for a missing worker
    FLEETX_SERVER_WAIT              how many seconds workers wait for a lost server

fleetrun sets them from its flags; a cluster that starts the processes itself sets them directly.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

KEYS = "FLEETX_SERVER_KEYS"
INSECURE = "FLEETX_SERVER_INSECURE"
STATE = "FLEETX_SERVER_STATE"
FSYNC = "FLEETX_SERVER_FSYNC"
SNAPSHOT_SECONDS = "FLEETX_SERVER_SNAPSHOT_SECONDS"
MEMORY = "FLEETX_SERVER_MEMORY"
SPILL = "FLEETX_SERVER_SPILL"
TAKE_OVER = "FLEETX_SERVER_TAKE_OVER"
LAYOUT = "FLEETX_SERVER_LAYOUT"
ELASTIC = "FLEETX_SERVER_ELASTIC"
WORKER_WAIT = "FLEETX_WORKER_WAIT"
SERVER_WAIT = "FLEETX_SERVER_WAIT"
FSYNC_POLICIES = ("none", "interval", "always")


@dataclass(frozen=True)
class ServerSupport:
    """The keys of a job and where a server keeps its state."""

    keys: Mapping[str, str] | None = None
    """The job's keys in the form that `fleetx.ps.wire.security.JobKeys.from_dict` accepts."""
    allow_insecure: bool = False
    """Whether servers may listen without keys."""
    state_folder: str | None = None
    """Where this server keeps its state; None to keep it in memory only."""
    fsync: str = "none"
    snapshot_seconds: float = 300.0
    memory: int | None = None
    """The bytes of memory for the rows of tables; None for no limit."""
    spill: str | None = None
    """The folder for rows beyond that; None for the folder of the state."""
    take_over: str | None = None
    """Where the servers of the layout before hand over their state; None if there were none."""
    layout: str | None = None
    """The folder that says where the servers are; None if they stay where they were started."""
    elastic: bool = False
    """Whether asynchronous training continues without lost workers."""
    worker_wait: float | None = None
    """How long servers wait for a missing worker; None for their default."""
    server_wait: float | None = None
    """How long this worker waits for a lost server; None for the default."""


DEFAULT_SERVER_WAIT = 120.0
"""Default seconds that a worker waits for a lost server."""


def detect_server_support(environ: Mapping[str, str] | None = None) -> ServerSupport:
    """Read the variables above; raise ValueError with the name of one that is invalid."""
    env = os.environ if environ is None else environ
    fsync = env.get(FSYNC, "") or "none"
    if fsync not in FSYNC_POLICIES:
        raise ValueError(f"{FSYNC} must be {', '.join(FSYNC_POLICIES)}, not {fsync!r}.")
    return ServerSupport(
        keys=read_keys(env[KEYS], KEYS) if env.get(KEYS) else None,
        allow_insecure=env.get(INSECURE, "0") not in ("", "0"),
        state_folder=env.get(STATE) or None,
        fsync=fsync,
        snapshot_seconds=_seconds(env, SNAPSHOT_SECONDS) or 300.0,
        memory=memory_size(env[MEMORY], MEMORY) if env.get(MEMORY) else None,
        spill=env.get(SPILL) or None,
        take_over=env.get(TAKE_OVER) or None,
        layout=env.get(LAYOUT) or None,
        elastic=env.get(ELASTIC, "0") not in ("", "0"),
        worker_wait=_seconds(env, WORKER_WAIT),
        server_wait=_seconds(env, SERVER_WAIT),
    )


def memory_size(text: str, named_by: str) -> int:
    """Return a number of bytes such as 800M or 1.5G, given by `named_by` (a variable or flag)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    size = (
        0
        if match is None
        else int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))
    )
    if size < 1:
        raise ValueError(f"{named_by} must be a size such as 800M or 8G, not {text!r}.")
    return size


def _seconds(env: Mapping[str, str], variable: str) -> float | None:
    text = env.get(variable, "")
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise ValueError(f"{variable} must be a number of seconds above 0, not {text!r}.")
    return value


def read_keys(path: str | os.PathLike[str], named_by: str) -> dict[str, str]:
    """Read a key file given by `named_by` (a variable or flag)."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(
            f"{named_by} names {path}, which cannot be read: {error.strerror}."
        ) from error
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise ValueError(
            f"{named_by} names {path}, which is not a key file: make one with `fleetx ps keys`."
        )
    return found


def write_keys(path: str | os.PathLike[str], keys: Mapping[str, str]) -> None:
    """Write a new key file that only this user can read; it must not exist yet."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise FileExistsError(
            f"{os.fspath(path)!r} already exists, and keys are not overwritten: name a new file."
        ) from error
    except OSError as error:
        raise OSError(
            f"the keys cannot be written to {os.fspath(path)!r}: {error.strerror}."
        ) from error
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(dict(keys), file, indent=1)
        file.write("\n")


def users_keys(new: Mapping[str, str], folder: Path | None = None) -> dict[str, str]:
    """Return this user's keys for jobs on loopback that no launcher has given keys.

    They are in a file that only this user can read, and become `new` if there is none yet.
    """
    folder = folder or Path.home() / ".cache" / "fleetx"
    path = folder / "server.keys"
    if not path.exists():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            temporary = folder / f".{secrets.token_hex(6)}.tmp"
            write_keys(temporary, new)
        except OSError as error:
            raise ValueError(
                f"the servers on this machine need keys, and none can be kept in {folder} "
                f"({error}): name a file made by `fleetx ps keys` in {KEYS}, or set {INSECURE}=1."
            ) from error
        with contextlib.suppress(FileExistsError):  # another process of the job was faster
            os.link(temporary, path)
        temporary.unlink()
    found = path.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ValueError(
            f"{path} must belong to this user and be readable by nobody else (chmod 600); remove "
            "it to have new keys made."
        )
    return read_keys(path, "this user's key file")
