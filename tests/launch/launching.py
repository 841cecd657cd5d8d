"""Helpers that start real launchers and workers, and inspect them."""

import os
import signal
import subprocess
from pathlib import Path

from waiting import LIMIT

ROOT = Path(__file__).resolve().parents[2]

# What a launcher or a test runner around this one may have set must not reach the tests.
_FOREIGN = ("PADDLE_", "FLAGS_", "PET_", "SLURM_", "OMPI_", "TORCHELASTIC_", "GLOO_")
_FOREIGN_NAMES = {
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "POD_IP"),
    *("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "GROUP_RANK", "NODE_RANK"),
}


def clean_environment(**more: str) -> dict[str, str]:
    """Return the environment of a user's shell with this project installed."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_FOREIGN) and name not in _FOREIGN_NAMES
    }
    return {**kept, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'compat'}", **more}


class Launch:
    """A fleetrun that was started; its output grows in two files."""

    def __init__(
        self,
        command: list[str],
        folder: Path,
        environment: dict[str, str],
        name: str,
        typed: bytes = b"",
    ) -> None:
        self._out, self._err = folder / f"{name}.out", folder / f"{name}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdout=out,
                stderr=err,
                stdin=subprocess.PIPE if typed else subprocess.DEVNULL,
            )
        if self.process.stdin is not None:
            self.process.stdin.write(typed)
            self.process.stdin.close()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def stdout(self) -> str:
        return self._out.read_text(errors="replace")

    @property
    def stderr(self) -> str:
        return self._err.read_text(errors="replace")

    def has_ended(self) -> bool:
        """Return whether fleetrun has ended."""
        return self.process.poll() is not None

    def end(self) -> int:
        """Wait for the end and return the exit code."""
        return self.process.wait(LIMIT)

    def show(self) -> None:
        """Print its output and exit code, which pytest shows for failed tests."""
        print(f"--- {self._err.name}: exit code {self.process.poll()}")
        print(self.stdout, self.stderr, sep="\n")

    def kill_whatever_is_left(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
