"""The common part of text loaders: this worker's shard of the data, and the files of a folder."""

from __future__ import annotations

from pathlib import Path

from fleetx.data.imagenet_shards import place_in_job


def worker_share() -> tuple[int, int]:
    """Return the rank of this worker and the number of workers; (0, 1) before `fleet.init()`."""
    index, count = place_in_job()
    # A server builds the same model and loaders, but reads nothing: any shard is valid.
    return index % count, count


def files_in(folder: str | Path, pattern: str) -> list[Path]:
    """Return the files and folders that match a pattern in a folder, sorted by name."""
    found = sorted(Path(folder).glob(pattern))
    if not found:
        raise FileNotFoundError(f"There is no file {pattern} in the folder {folder}.")
    return found
