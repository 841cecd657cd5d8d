"""Parser of faulthandler's output: the Python stacks of a process, in the order of a traceback.

faulthandler starts with the innermost frame and omits the source; here the outermost frame comes
first and the source is added, so that a stack reads like a Python traceback.
"""

from __future__ import annotations

import linecache
import os
import re
from pathlib import Path

FATAL = "Fatal Python error: "
_THREAD = re.compile(r"^(?P<current>Current thread|Thread) .*$", flags=re.MULTILINE)
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<name>.*)')

UNCAUGHT = "Uncaught exception:\n"
"""What run_script.py writes before an uncaught exception."""

_LEADING = ("run_script.py", "warm_parent.py")
"""Files whose frames lead into the script."""

Frame = tuple[str, int, str]
"""A file, a line number and the function."""


def threads(dump: str) -> list[list[Frame]]:
    """Return the frames of every thread, outermost first, starting with the main thread."""
    return [frames for frames, _ in _parts(dump) if frames][::-1]  # newest first


def current_thread(dump: str) -> list[Frame]:
    """Return the frames of the thread in which a fatal error occurred, outermost first."""
    return next((frames for frames, is_current in _parts(dump) if is_current), [])


def exception(file: Path | None) -> str:
    """Return the exception that ended a process, from the file of its stacks; "" for none."""
    if file is None or not file.exists():
        return ""
    _, found, text = file.read_text(encoding="utf-8", errors="replace").rpartition(UNCAUGHT)
    return text.strip() if found else ""


def _parts(dump: str) -> list[tuple[list[Frame], bool]]:
    heads = list(_THREAD.finditer(dump))  # none if the process did not respond
    ends = [head.start() for head in heads[1:]] + [len(dump)] * bool(heads)
    return [
        (_frames(dump[head.end() : end]), head["current"] != "Thread")
        for head, end in zip(heads, ends, strict=True)
    ]


def _frames(text: str) -> list[Frame]:
    found = []
    for line in text.lstrip("\n").splitlines():
        frame = _FRAME.match(line)
        if frame is None:
            break  # a list of modules or a C stack follows
        if os.path.basename(frame["file"]) not in _LEADING:
            number = int(frame["line"]) if frame["line"].isdecimal() else 0
            found.append((frame["file"], number, frame["name"]))
    return found[::-1]


def lines_of(frame: Frame) -> list[str]:
    """Return the lines of a frame in a traceback."""
    file, line, name = frame
    shown = [f'  File "{file}", line {line}, in {name}']
    source = linecache.getline(file, line).strip()
    return [*shown, f"    {source}"] if source else shown
