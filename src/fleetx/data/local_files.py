"""Look-up of a data set's local files; nothing is downloaded."""

from __future__ import annotations

from pathlib import Path

DATA_HOME = Path("~/.cache/paddle/dataset")


def find_file(dataset: str, *names: str, data_dir: str | Path | None = None) -> Path:
    """Return the file of a data set, under the first of its usual names that exists.

    The default folder is `~/.cache/paddle/dataset/<dataset>`.
    """
    folder = Path(data_dir) if data_dir is not None else DATA_HOME.expanduser() / dataset
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(
        f"The data set {dataset!r} needs the file {' or '.join(names)}, which is not in {folder}; "
        "put it there, or pass the folder that holds it as data_dir."
    )
