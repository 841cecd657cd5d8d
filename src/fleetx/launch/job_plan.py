"""The settings of a job on this machine, fixed before the first process starts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fleetx.launch.arguments import Options
from fleetx.launch.devices import Devices


@dataclass(frozen=True)
class JobPlan:
    """What the supervisor starts, and where."""

    options: Options
    devices: Devices
    environment: dict[str, str]
    """The variables that all processes inherit."""
    command: list[str]
    scratch: Path
    """The scratch folder of this job on this machine, removed when the job ends."""
    state: Path | None = None
    """Where parameter servers keep their state for a restart; None to keep it in memory only."""

    def measuring(self) -> dict[str, str]:
        """Return the variables that tell a worker where to write its measurements, if at all."""
        if not self.options.has_log_dir:
            return {}
        # The name of the scratch folder is unique to the job.
        folder = os.path.abspath(self.options.log_dir)
        return {"FLEETX_LOG_DIR": folder, "FLEETX_RUN": self.scratch.name}
