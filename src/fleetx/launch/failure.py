"""Why a job ended: the record shown on every machine, and how the root cause is found.

The first failing worker is the one that matters to the user. Others usually fail a moment later
because their connection to it broke. Of several failures, the root cause is therefore the one that
is not a connection error and whose output stopped first.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fleetx.launch import fault_dump, full_disk
from fleetx.launch.records import checked

_EXCERPT_BYTES = 1 << 16
_TRACEBACK_LINES = 30
_PLAIN_LINES = 10
# The usual cause of a signal, as the end of a sentence.
_MEANINGS: dict[int, str] = {
    signal.SIGILL: "an instruction that this CPU does not support (`fleetx info` shows the "
    "instruction set that works here)",
    signal.SIGBUS: "usually because shared memory is full ({usage})",
    signal.SIGSEGV: "a crash in native code (an extension module or a library)",
    signal.SIGABRT: "by native code that aborted (an uncaught C++ exception, a failed assertion)",
    signal.SIGFPE: "an arithmetic error in native code, such as an integer division by zero",
    signal.SIGXCPU: "because its CPU time limit was reached (ulimit -t)",
}
_TRACEBACK = "Traceback (most recent call last):"
# Errors of torch, Gloo, NCCL, shared memory and plain sockets when the peer is gone.
_BROKEN_CONNECTION = re.compile(
    r"connection (was )?(closed|reset|refused|broken|lost)|broken pipe|remote process exited"
    r"|DistNetworkError|socket (has been )?(timeout|closed)|timed out waiting"
    r"|cannot be completed: (a collective of )?worker \d",
    flags=re.IGNORECASE,
)


@dataclass(frozen=True)
class Failure:
    """A reason for ending a job."""

    kind: str
    """exit: a worker failed; lost: a machine is gone; hang: no step; asked: a signal."""
    host: str
    sentence: str
    code: int
    excerpt: str = ""
    log: str = ""
    when: float = 0.0
    """The time of the worker's last output, which determines the first of several failures."""
    cause: str = ""
    """The last line on the terminal: what to do about a full disk; "" if there is none."""

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Failure:
        """Read what `to_json` wrote; raise ValueError for anything else."""
        texts = dict.fromkeys(("kind", "host", "sentence", "excerpt", "log", "cause"), str)
        return cls(**checked(record, {**texts, "code": int, "when": float}))

    def text(self) -> str:
        """Return the text shown on the terminal."""
        lines = [self.sentence]
        if self.excerpt:
            title = f"---- last lines of {self.log} "
            lines += [title.ljust(72, "-"), self.excerpt, "-" * 72]
        elif self.log:
            lines.append(f"It wrote nothing to its log {self.log}.")
        if self.cause:
            lines.append(self.cause)
        return "\n".join(lines)


def first(failures: Iterable[Failure]) -> Failure:
    """Return the failure that caused the others."""
    return min(failures, key=lambda f: (is_consequence(f), f.when))


def is_consequence(failure: Failure) -> bool:
    """Return whether a worker ended because its connection to another one broke."""
    if failure.kind != "exit":
        return False
    # Messages of native code precede the stack of a fatal error.
    lines = failure.excerpt.partition(fault_dump.FATAL)[0].rstrip().splitlines()
    return bool(_BROKEN_CONNECTION.search("\n".join(_reason(lines))))


def _reason(lines: list[str]) -> list[str]:
    """Return the lines that give the reason: those of the exception, or else the last ones."""
    starts = [i for i, line in enumerate(lines) if _TRACEBACK in line]
    if not starts:
        return lines[-3:]
    block = lines[starts[-1] :]
    end = _exception_at(block)
    # The exception's own text comes first; output of the shutting-down process follows.
    return block[-3:] if end is None else block[end : end + 3]


def of_worker(
    name: str,
    host: str,
    returncode: int,
    log: Path,
    offset: int,
    out_of_memory: bool,
    exception: str = "",
) -> Failure:
    """Describe a process that ended with `returncode`; its output starts at `offset` of `log`.

    `exception` is the one that ended it, which a full disk keeps out of the log.
    """
    how = manner(returncode, out_of_memory)
    words = excerpt(log, offset)
    cause = _cause(returncode, words, log, exception)
    if cause and exception and _is_missing(exception, words):
        words = "\n".join([*words.splitlines()[-_PLAIN_LINES:], *exception.splitlines()])
    return Failure(
        kind="exit",
        host=host,
        sentence=f"{name.capitalize()} on {host} failed first: {how}.",
        code=returncode if returncode > 0 else 128 - returncode,
        excerpt=words,
        log=str(log),
        when=log.stat().st_mtime if log.exists() else 0.0,
        cause=cause,
    )


def _cause(returncode: int, words: str, log: Path, exception: str) -> str:
    """Return one line about a full disk if that is the cause of a failure; otherwise ""."""
    if returncode == -signal.SIGBUS:
        return full_disk.of_bus_error()
    if exception and _is_missing(exception, words):
        return full_disk.of_log_error(log, exception)
    reason = "\n".join(_reason(words.splitlines()))
    return full_disk.of_text(reason, [log.parent]) or ("" if exception else full_disk.of_log(log))


def _is_missing(exception: str, words: str) -> bool:
    """Return whether an exception is missing in what a log shows."""
    return _reason(exception.rstrip().splitlines())[0] not in words


def manner(returncode: int, out_of_memory: bool) -> str:
    """Describe how a process ended."""
    if returncode > 0:
        return f"it ended with exit code {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = f"signal {-returncode}"
    if returncode == -signal.SIGKILL:
        if out_of_memory:
            return f"killed, probably out of memory ({name}; the kernel's count of such kills rose)"
        return f"killed by {name}, by another process or by the system"
    meaning = _MEANINGS.get(-returncode, "").format(usage=full_disk.usage("/dev/shm"))
    return f"ended by {name}, {meaning}" if meaning else f"ended by {name}"


def excerpt(log: Path, offset: int = 0) -> str:
    """Return the last traceback in a log, or its last lines if there is none.

    The stack that faulthandler writes on a fatal error follows the output before it.
    """
    try:
        with log.open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(offset, end - _EXCERPT_BYTES))
            text = file.read().decode("utf-8", errors="replace").rstrip()
    except FileNotFoundError:
        return ""
    before, fatal, dump = text.rpartition(fault_dump.FATAL)
    if fatal and _TRACEBACK not in dump:
        recent = before.rstrip().splitlines()[-2 * _TRACEBACK_LINES :]
        parts = [_last_words(recent), _stack(dump)]
        return "\n".join(part for part in parts if part)
    return _last_words(text.splitlines())


def _last_words(lines: list[str]) -> str:
    starts = [i for i, line in enumerate(lines) if _TRACEBACK in line]
    if not starts:
        return "\n".join(lines[-_PLAIN_LINES:])
    return "\n".join(_shortened(_whole_traceback(lines[starts[-1] :])))


def _stack(dump: str) -> str:
    """Return the stack of the thread in which a fatal error occurred, as a traceback."""
    frames = fault_dump.current_thread(dump)
    lines = [line for frame in frames for line in fault_dump.lines_of(frame)]
    head = fault_dump.FATAL + dump.partition("\n")[0]
    return "\n".join([head, *_shortened(lines or ["  (outside of Python code)"])])


def _shortened(lines: list[str]) -> list[str]:
    if len(lines) <= _TRACEBACK_LINES:
        return lines
    half = _TRACEBACK_LINES // 2
    return [*lines[:half], f"  ... {len(lines) - 2 * half} lines ...", *lines[-half:]]


def _whole_traceback(lines: list[str]) -> list[str]:
    """Drop what other threads or exit handlers wrote long after the exception."""
    end, prefix = _exception_at(lines), _prefix(lines)
    if end is None:
        return lines
    # Its text may span several lines, which have the prefix, too, if there is one.
    marked = [i + 1 for i, line in enumerate(lines) if prefix and line.startswith(prefix)]
    return lines[: max(end + _PLAIN_LINES, *marked, 0)]


def _prefix(traceback: list[str]) -> str:
    """Return what torch puts before each line of a traceback, such as "[rank1]: "."""
    return traceback[0].partition(_TRACEBACK)[0]


def _exception_at(lines: list[str]) -> int | None:
    """Return the line number of the exception in a traceback; None if it is missing."""
    prefix = _prefix(lines)
    for index, line in enumerate(lines[1:], start=1):
        body = line.removeprefix(prefix)
        if body and not body.startswith(" "):
            return index
    return None


class MemoryKills:
    """The kernel's count of out-of-memory kills."""

    def __init__(self) -> None:
        self._before = _kill_counts()

    def happened(self) -> bool:
        """Return whether the count has risen since this object was created."""
        now = _kill_counts()
        return any(count > self._before.get(file, count) for file, count in now.items())


def _kill_counts() -> dict[str, int]:
    counts = {}
    for file in ["/proc/vmstat", *_control_group_files()]:
        try:
            text = Path(file).read_text(encoding="ascii")
        except (FileNotFoundError, PermissionError, NotADirectoryError):
            continue  # another cgroup version, or one hidden from this process
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
