"""Why a job ended: the record that is shown on every machine, and how it is found out.

The first failing worker is the one the user wants to read about. The others usually follow within
a moment because their connection to it broke, so among several the one that complains about
something else than a connection, and fell silent first, is taken.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_EXCERPT_BYTES = 1 << 16
_TRACEBACK_LINES = 30
_PLAIN_LINES = 10
_TRACEBACK = "Traceback (most recent call last):"
# What torch, Gloo, NCCL and plain sockets say when the other side has gone.
_BROKEN_CONNECTION = re.compile(
    r"connection (was )?(closed|reset|refused|broken|lost)|broken pipe|remote process exited"
    r"|DistNetworkError|socket (has been )?(timeout|closed)|timed out waiting",
    flags=re.IGNORECASE,
)


@dataclass(frozen=True)
class Failure:
    """One reason to end a job."""

    kind: str
    """exit: a worker ended badly; lost: a machine is gone; hang: no step; asked: a signal."""
    host: str
    sentence: str
    code: int
    excerpt: str = ""
    log: str = ""
    when: float = 0.0
    """The time of the worker's last output, to find the first of several."""

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Failure:
        """Read what `to_json` wrote."""
        return cls(**record)

    def text(self) -> str:
        """Return what the terminal shows."""
        lines = [self.sentence]
        if self.excerpt:
            title = f"---- last lines of {self.log} "
            lines += [title.ljust(72, "-"), self.excerpt, "-" * 72]
        elif self.log:
            lines.append(f"It wrote nothing to its log {self.log}.")
        return "\n".join(lines)


def first(failures: Iterable[Failure]) -> Failure:
    """Choose the failure that the others followed from."""
    return min(failures, key=lambda f: (_is_consequence(f), f.when))


def _is_consequence(failure: Failure) -> bool:
    last = failure.excerpt.rstrip().splitlines()[-3:]
    return failure.kind == "exit" and bool(_BROKEN_CONNECTION.search("\n".join(last)))


def of_worker(
    name: str, host: str, returncode: int, log: Path, offset: int, out_of_memory: bool
) -> Failure:
    """Describe a process that ended with `returncode`; its output starts at `offset` of `log`."""
    how = manner(returncode, out_of_memory)
    return Failure(
        kind="exit",
        host=host,
        sentence=f"{name.capitalize()} on {host} failed first: {how}.",
        code=returncode if returncode > 0 else 128 - returncode,
        excerpt=excerpt(log, offset),
        log=str(log),
        when=log.stat().st_mtime if log.exists() else 0.0,
    )


def manner(returncode: int, out_of_memory: bool) -> str:
    """Say how a process ended."""
    if returncode > 0:
        return f"it ended with exit code {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = f"signal {-returncode}"
    if returncode == -signal.SIGKILL:
        if out_of_memory:
            return f"killed, probably out of memory ({name}; the kernel's count of such kills rose)"
        return f"killed by {name}, by somebody or by the system"
    return f"ended by {name}"


def excerpt(log: Path, offset: int = 0) -> str:
    """Return the last traceback in a log, or its last lines where there is none."""
    try:
        with log.open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(offset, end - _EXCERPT_BYTES))
            lines = file.read().decode("utf-8", errors="replace").rstrip().splitlines()
    except FileNotFoundError:
        return ""
    starts = [i for i, line in enumerate(lines) if _TRACEBACK in line]
    if not starts:
        return "\n".join(lines[-_PLAIN_LINES:])
    block = _whole_traceback(lines[starts[-1] :])
    if len(block) > _TRACEBACK_LINES:
        half = _TRACEBACK_LINES // 2
        block = [*block[:half], f"  ... {len(block) - 2 * half} lines ...", *block[-half:]]
    return "\n".join(block)


def _whole_traceback(lines: list[str]) -> list[str]:
    """Cut off what other threads or exit handlers wrote long after the exception."""
    prefix = lines[0].partition(_TRACEBACK)[0]  # torch puts "[rank1]: " before each line
    for index, line in enumerate(lines[1:], start=1):
        body = line.removeprefix(prefix)
        if body and not body.startswith(" "):  # the exception itself; its text may be longer
            return lines[: index + _PLAIN_LINES]
    return lines


class MemoryKills:
    """The kernel's count of processes it killed for want of memory."""

    def __init__(self) -> None:
        self._before = _kill_counts()

    def happened(self) -> bool:
        """Say whether the count has risen since this object was made."""
        now = _kill_counts()
        return any(count > self._before.get(file, count) for file, count in now.items())


def _kill_counts() -> dict[str, int]:
    counts = {}
    for file in ["/proc/vmstat", *_control_group_files()]:
        try:
            text = Path(file).read_text(encoding="ascii")
        except (FileNotFoundError, PermissionError, NotADirectoryError):
            continue  # another version of control groups, or one that is not shown to us
        found = re.search(r"^oom_kill (\d+)$", text, flags=re.MULTILINE)
        if found:
            counts[file] = int(found.group(1))
    return counts


def _control_group_files() -> list[str]:
    files = []
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):  # version 1
            files += [f"/sys/fs/cgroup/memory{p}/memory.oom_control" for p in (path, "")]
        elif number == "0":  # version 2; inside a container its own group is the root
            files += [f"/sys/fs/cgroup{p}/memory.events" for p in (path, "")]
    return files
