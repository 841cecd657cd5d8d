"""What loaders of text share: which part of the data is this worker's, and files of a folder."""

from __future__ import annotations

from pathlib import Path

from fleetx.data.imagenet_shards import place_in_job


def worker_share() -> tuple[int, int]:
    """Return this worker's number and how many there are; (0, 1) before `fleet.init()`."""
    index, count = place_in_job()
    # A server builds the same model and loaders, but reads nothing: any share will do.
    return index % count, count


def files_in(folder: str | Path, pattern: str) -> list[Path]:
    """Return the files and folders of a folder that a pattern names, in the order of names."""
    found = sorted(Path(folder).glob(pattern))
    if not found:
        raise FileNotFoundError(f"There is no file {pattern} in the folder {folder}.")
    return found
