"""TensorBoard event files of a worker: loss, samples per second, shares of time, step times.

Every worker has its own folder below `tensorboard`, which TensorBoard shows as separate runs: the
curves `time/step_seconds` of all workers share one chart. Values are means over about one second.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleetx.monitor.record import StepRecord, merged
from fleetx.monitor.recorder import now

_EVERY = 1.0  # seconds between two points


class EventFiles:
    """Writer of event files."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "FLEETX_TENSORBOARD enables event files, but the package tensorboard is not "
                "installed: pip install 'fleetx[tensorboard]'"
            ) from error
        self._writer: Any = SummaryWriter(str(folder), flush_secs=10)  # type: ignore[no-untyped-call]
        self._sum: StepRecord | None = None
        self._written: float | None = None

    def take(self, record: StepRecord) -> None:
        """Add a step."""
        if self._sum is not None:
            record.read_loss()
            record = merged(self._sum, record)
        self._sum = record
        moment = now()
        if self._written is None or moment - self._written >= _EVERY:
            self._written = moment
            self._write(record)

    def _write(self, record: StepRecord) -> None:
        self._sum = None
        seconds = max(record.seconds, 1e-9)
        values = {
            "loss": record.read_loss(),
            "samples_per_second": record.samples / seconds,
            "share/communication": record.wait / seconds,
            "share/data": record.data / seconds,
            "time/step_seconds": seconds / record.steps,
            "time/busy_seconds": record.busy / record.steps,
        }
        for name, value in values.items():
            if value is not None:
                self._writer.add_scalar(name, value, record.step, walltime=record.time)

    def close(self) -> None:
        """Write the remaining values and close the file."""
        if self._sum is not None:
            self._write(self._sum)
        self._writer.close()
