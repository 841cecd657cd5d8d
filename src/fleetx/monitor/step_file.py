"""The file in which a worker records its steps: one line of JSON per step.

Whole lines are written, at most a few times a second, so that a crash loses only the last moment
and never damages earlier lines. A file that has grown to `MOST_LINES` is rewritten with consecutive
steps merged, and from then on each line represents twice as many steps: the size is bounded, and
the file still covers the whole run.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from fleetx.checkpoint import atomic
from fleetx.monitor.record import StepRecord, merged, record_from
from fleetx.monitor.recorder import now

MOST_LINES = 20_000
_EVERY = 0.25  # seconds between two writes


class StepFile:
    """Writer of the steps of one worker.

    Args:
        path: the file; the steps of an earlier run are replaced.
        head: facts of the worker, written as the first line. If the file's head has the same `run`,
            the worker was restarted and the file is continued.
        most_lines: the number of lines at which consecutive steps are merged.
    """

    def __init__(self, path: Path, head: dict[str, Any], most_lines: int = MOST_LINES) -> None:
        self._path, self._most = path, max(2, most_lines)
        self._stride, self._lines, self._is_broken = 1, 0, False
        self._head = json.dumps({"kind": "start", **head}) + "\n"
        self._pending: StepRecord | None = None
        self._text: list[str] = [self._head]
        self._written = now()
        path.parent.mkdir(parents=True, exist_ok=True)
        goes_on = head.get("run") and _run_of(path) == head["run"]
        if goes_on:
            self._lines = path.read_bytes().count(b"\n")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (0 if goes_on else os.O_TRUNC)
        self._file = os.open(path, flags, 0o644)
        if goes_on:
            self._text.insert(0, "\n")  # in case the last line was cut off
        self._write()

    def take(self, record: StepRecord) -> None:
        """Add a step."""
        if self._is_broken:
            return
        if self._pending is not None:
            record.read_loss()
            record = merged(self._pending, record)
        if record.steps < self._stride:
            record.read_loss()
            self._pending = record
            return
        self._pending = None
        self._add(record)

    def _add(self, record: StepRecord) -> None:
        self._text.append(record.line())
        self._lines += 1
        moment = now()
        if moment - self._written >= _EVERY:
            self._write()
            self._written = moment
        if self._lines >= self._most:
            self._halve()

    def _write(self) -> None:
        data = "".join(self._text).encode()
        self._text.clear()
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """Warn once that writing has stopped: a full disk must not end the training."""
        print(
            f"{self._path} cannot be written ({error.strerror}): further steps will not be in "
            "the report.",
            file=sys.stderr,
            flush=True,
        )
        self._is_broken = True

    def _halve(self) -> None:
        """Rewrite the file with pairs of steps merged."""
        self._write()
        if self._is_broken:
            return
        kept, records = _parts(self._path)
        pairs = [merged(*records[i : i + 2]) for i in range(0, len(records) - 1, 2)]
        if len(records) % 2:
            self._pending = records[-1]
        self._stride *= 2
        text = "".join([*kept, *(record.line() for record in pairs)])
        try:
            atomic.write_bytes(self._path, text.encode())
        except OSError as error:
            self._give_up(error)
            return
        os.close(self._file)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        self._lines = len(pairs)

    def close(self) -> None:
        """Write the remaining steps and a mark that the run has ended."""
        if self._is_broken:
            os.close(self._file)
            return
        if self._pending is not None:
            self._text.append(self._pending.line())
            self._pending = None
        self._text.append(json.dumps({"kind": "end"}) + "\n")
        self._write()
        os.close(self._file)


def _parts(path: Path) -> tuple[list[str], list[StepRecord]]:
    """Return the lines of a file that are not steps, and the steps."""
    kept: list[str] = []
    records: list[StepRecord] = []
    for line in path.read_text(errors="replace").splitlines():
        try:
            fields = json.loads(line)
            if "kind" in fields:
                kept.append(line + "\n")
            else:
                records.append(record_from(fields))
        except (ValueError, TypeError):
            continue  # the worker was killed while writing this line, and restarted
    return kept, records


def _run_of(path: Path) -> str | None:
    """Return the run that a file belongs to; None if the file is missing or has no head."""
    try:
        with path.open("rb") as file:
            head = json.loads(file.readline())
    except (FileNotFoundError, ValueError):
        return None
    return head.get("run") if isinstance(head, dict) else None
