"""What loaders of text share: which part of the data is this worker's, and files of a folder."""

from __future__ import annotations

from pathlib import Path

from fleetx.launch.environment import worker_index, worker_num


def worker_share() -> tuple[int, int]:
    """Return this worker's number and how many there are; (0, 1) without a launcher."""
    return worker_index(), worker_num()


def files_in(folder: str | Path, pattern: str) -> list[Path]:
    """Return the files and folders of a folder that a pattern names, in the order of names."""
    found = sorted(Path(folder).glob(pattern))
    if not found:
        raise FileNotFoundError(f"There is no file {pattern} in the folder {folder}.")
    return found
