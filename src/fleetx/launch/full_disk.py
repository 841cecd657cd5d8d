"""Detect a full disk as the cause of a failure, and report it in one line with a remedy.

Workers report it in many ways: an OSError, a message of PyTorch's or safetensors' native code, or
not at all if it is the disk of their log that is full.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SHARED_MEMORY = "/dev/shm"
_PROBLEM = re.compile("|".join(os.strerror(number) for number in _ERRNOS))
# Between quotation marks in Python, in angle brackets in PyTorch, otherwise up to a space.
_PATH = re.compile(r"""['"<](/[^'"<>]+)['">]|(?<![\w/])(/dev/shm/[^\s:,]+)""")
# What torch.save reports instead of the error of the system.
_TORCH_WRITER = re.compile(r"inline_container\.cc.* unexpected pos|PytorchStreamWriter failed")
_SHARED_MEMORY_ERROR = re.compile(r"out of shared memory|insufficient shared memory", re.IGNORECASE)
# A file system with less free space counts as full: the write may have needed more than is left.
_LITTLE = 1 << 16


def is_full(error: OSError) -> bool:
    """Return whether an error means that there is no space for a file."""
    return error.errno in _ERRNOS


def of_error(error: OSError, place: str) -> str:
    """Return the cause if `is_full(error)`; `place` is where, if the error does not name a file."""
    file = error.filename
    problem = os.strerror(error.errno or errno.ENOSPC)
    return _sentence(problem, os.fsdecode(file) if isinstance(file, str | bytes) else place)


def of_text(reason: str, folders: Sequence[str | Path] = ()) -> str:
    """Return the cause from the last lines of a worker's log; "" if it is no full disk.

    `folders` are where the worker may have written, for messages that do not name the file.
    """
    if _SHARED_MEMORY_ERROR.search(reason):
        return of_shared_memory()
    found = _PROBLEM.search(reason)
    if found is None and not _TORCH_WRITER.search(reason):
        return ""
    path = _PATH.search(reason)
    name = "" if path is None else path.group(1) or path.group(2)
    if name.startswith(("/torch_", _SHARED_MEMORY)):
        return of_shared_memory()
    if not name:
        candidates = [os.getcwd(), tempfile.gettempdir(), *map(str, folders)]
        name = next((folder for folder in candidates if _is_short(folder)), "")
    if found is None:
        if name:
            return _sentence(os.strerror(errno.ENOSPC), name)
        return (
            "PyTorch could not write a file, usually because the disk is full: free space (df -h), "
            "or save to another folder."
        )
    return _sentence(found.group(), name)


def of_log(log: Path) -> str:
    """Return the cause if the disk of a log is full; "" if it is not."""
    if not _is_short(log.parent):
        return ""
    return _sentence(os.strerror(errno.ENOSPC), str(log), "--log_dir")


def of_log_error(log: Path, reason: str) -> str:
    """Return the cause of an exception that did not reach the log; "" if it is no full disk."""
    found = _PROBLEM.search(reason)
    return of_log(log) if found is None else _sentence(found.group(), str(log), "--log_dir")


def of_bus_error() -> str:
    """Return the cause of a process that SIGBUS ended, if shared memory is still full."""
    return of_shared_memory() if _is_short(_SHARED_MEMORY) else ""


def of_shared_memory() -> str:
    """Return the cause of a process for which shared memory was full."""
    return (
        f"Shared memory is full ({usage(_SHARED_MEMORY)}): give the container more "
        "(docker run --shm-size=8g or --ipc=host), or use fewer DataLoader workers."
    )


def usage(folder: str) -> str:
    """Return the size of a file system and its current usage."""
    try:
        found = os.statvfs(folder)
    except OSError as error:
        return f"{folder}: {error.strerror}"
    size, free = found.f_blocks * found.f_frsize, found.f_bfree * found.f_frsize
    return f"{folder}: {(size - free) / 1e6:.0f} of {size / 1e6:.0f} MB used now"


def _is_short(folder: str | Path) -> bool:
    try:
        found = os.statvfs(folder)
    except OSError:  # gone, or on another machine
        return False
    return found.f_blocks > 0 and found.f_bavail * found.f_frsize < _LITTLE


def _sentence(problem: str, path: str, flag: str = "") -> str:
    where = f"{path} could not be written" if path else "a file could not be written (see above)"
    other = f"choose another folder with {flag}" if flag else "use another folder"
    if problem == os.strerror(errno.EFBIG):
        return f"{problem}: {where}; raise the limit of the size of a file (ulimit -f), or {other}."
    left = ""
    folder = Path(path).parent if path else None
    if folder is not None and folder.is_dir():
        left = f" ({usage(str(folder))})"
    return f"{problem}: {where}{left}; free space there, or {other}."
