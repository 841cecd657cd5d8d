"""The timeline of a worker: the stages of its first steps.

Every worker writes `timeline.N.jsonl`: a head with its clock offset, then one line per span, in
nanoseconds. `trace.py` merges the files of all workers on one time axis.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TextIO

from fleetx.monitor.clock import ClockOffset
from fleetx.monitor.files import timeline_file

STEPS = 100


class Timeline:
    """Writer of the spans of a number of steps."""

    def __init__(
        self, folder: Path, rank: int, head: dict[str, Any], clock: ClockOffset, steps: int = STEPS
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file: TextIO | None = timeline_file(folder, rank).open("w")
        self._left = steps
        self._lines: list[str] = []
        self._file.write(json.dumps({"rank": rank, "clock": clock.facts(), **head}) + "\n")
        self._file.flush()

    def span(self, name: str, kind: str, began: float, ended: float) -> None:
        """Add a span, given in seconds of `perf_counter`.

        `kind` is 'step', 'compute', 'communication' or 'data'.
        """
        if self._file is not None:
            line = [name, kind, round(began * 1e9), round(ended * 1e9)]
            self._lines.append(json.dumps(line) + "\n")

    def step_ended(self) -> None:
        """Write the spans of a completed step."""
        if self._file is None:
            return
        self._file.write("".join(self._lines))
        self._file.flush()
        self._lines.clear()
        self._left -= 1
        if not self._left:
            self.close()

    def close(self) -> None:
        """Close the file; an incomplete step is dropped."""
        if self._file is not None:
            self._file.write('["end"]\n')
            self._file.close()
            self._file = None
