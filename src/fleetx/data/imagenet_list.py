"""The list of an ImageNet data set: `train.txt` or `val.txt` with a line "path label" per image.

Paths are relative to the folder named after the list (`train/`, `val/`), or to the folder of the
list. An invalid line is reported with file and line number, or skipped and counted. A million lines
are stored as a few arrays, which processes share, not as a million objects.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
_SHOWN = 5  # problems that an error message lists


class Problem(NamedTuple):
    """A problem with one line of a list, or with its image."""

    file: Path
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


def image_problem(file: Path, line: int, path: str, error: Exception) -> Problem:
    """Return the problem of an image that could not be read."""
    if isinstance(error, FileNotFoundError):
        return Problem(file, line, "missing image", f"image {path!r} does not exist")
    return Problem(file, line, "unreadable image", f"image {path!r} cannot be used: {error}")


class DataError(ValueError):
    """An error for invalid lines or images; `problems` lists them all."""

    def __init__(self, problems: Iterable[Problem] | str) -> None:
        """Take the problems, or the text with which PyTorch re-raises a loader process's error."""
        self.problems = () if isinstance(problems, str) else tuple(problems)
        if isinstance(problems, str):
            super().__init__(problems)
            return
        shown = "; ".join(str(problem) for problem in self.problems[:_SHOWN])
        more = len(self.problems) - _SHOWN
        rest = f"; and {more} more" if more > 0 else ""
        super().__init__(
            f"{shown}{rest}. Correct the list, or pass on_error='skip' to skip such lines "
            "('fleetx data check' shows all of them)."
        )


def check_on_error(on_error: str) -> None:
    """Reject anything but "raise" and "skip"."""
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error must be 'raise' or 'skip', not {on_error!r}.")


class ImageList:
    """Images and labels of a list, in order; `skipped` lists the skipped lines."""

    def __init__(
        self,
        file: Path,
        folder: Path,
        names: Sequence[bytes],
        labels: Sequence[int],
        lines: Sequence[int],
        skipped: Iterable[Problem] = (),
    ) -> None:
        """Take path, label and line number of every image; `read_list` reads them from a file."""
        self.file = file
        self.folder = folder
        self.skipped = tuple(skipped)
        self.labels: Array = np.array(labels, dtype=np.int64)
        self._lines: Array = np.array(lines, dtype=np.int64)
        self._ends: Array = np.cumsum(np.fromiter(map(len, names), np.int64, len(names)))
        self._names = b"".join(names)

    def __len__(self) -> int:
        return len(self.labels)

    def name(self, index: int) -> str:
        """Return an image's path as given in the list."""
        start = int(self._ends[index - 1]) if index else 0
        return os.fsdecode(self._names[start : int(self._ends[index])])

    def line(self, index: int) -> int:
        """Return the line number of an image in the list, from 1."""
        return int(self._lines[index])

    def path(self, index: int) -> str:
        """Return an image's file; one listed as .JPEG may be .jpeg on disk."""
        return found_path(str(self.folder), self.name(index))

    def read(self, index: int) -> bytes:
        """Return an image's bytes."""
        folder, name = str(self.folder), self.name(index)
        path = os.path.join(folder, name)
        try:
            # The usual case needs no look-up in the folder.
            file = open(path, "rb")  # noqa: SIM115 - closed below
        except FileNotFoundError:
            other = found_path(folder, name)
            if other == path:
                raise
            file = open(other, "rb")  # noqa: SIM115
        with file:
            return file.read()

    def problem(self, index: int, error: Exception) -> Problem:
        """Return the problem of an image that could not be read, with its line."""
        return image_problem(self.file, self.line(index), self.path(index), error)


def found_path(folder: str, name: str) -> str:
    """Return the file of an image, with .jpeg for .JPEG if only that exists."""
    path = os.path.join(folder, name)
    if "JPEG" in name and not os.path.exists(path):
        other = os.path.join(folder, name.replace("JPEG", "jpeg"))
        if os.path.exists(other):
            return other
    return path


def read_list(
    file: str | Path,
    *,
    folder: str | Path | None = None,
    num_classes: int = 1000,
    on_error: str = "raise",
    check_files: bool = False,
) -> ImageList:
    """Read a list; `check_files` checks that every image exists, which is slow on a slow disk.

    A line without a label, with a label outside 0..num_classes-1, or with an image of an earlier
    line (or, with `check_files`, a missing image) is an error, or skipped with
    `on_error="skip"`. A list without any image is always an error.
    """
    check_on_error(on_error)
    file = Path(file)
    images, problems = scan_list(
        file, folder=folder, num_classes=num_classes, check_files=check_files
    )
    if problems and on_error == "raise":
        raise DataError(problems)
    if len(images) == 0:
        why = f"all of its {len(problems)} lines are wrong" if problems else "it is empty"
        raise ValueError(
            f"{file} lists no image ({why}): it needs lines such as 'n01440764/a.jpeg 0'."
        )
    return images


def scan_list(
    file: Path,
    *,
    folder: str | Path | None = None,
    num_classes: int = 1000,
    check_files: bool = False,
) -> tuple[ImageList, list[Problem]]:
    """Return the images of the valid lines, and the problems of the others."""
    if not file.is_file():
        raise FileNotFoundError(
            f"there is no list {str(file)!r}: it has a line 'path label' per image."
        )
    names: list[bytes] = []
    # Arrays, since every number in a list is a separate object.
    labels, lines = array("q"), array("q")
    problems: list[Problem] = []
    seen: dict[bytes, int] = {}
    base: Path | None = None if folder is None else Path(folder)
    for number, fields in _fields(file):
        path, kind, text = fields[0], "", ""
        label = _number(fields)
        if label is None:
            kind, text = _no_label(fields)
        elif not 0 <= label < num_classes:
            kind, text = "label out of range", f"label {label} is not in 0..{num_classes - 1}"
        elif path in seen:
            kind = "duplicate"
            text = f"image {os.fsdecode(path)!r} is on line {seen[path]} already"
        else:
            seen[path] = number
            if base is None:
                base = image_folder(file, os.fsdecode(path))
            if check_files and not os.path.isfile(found_path(str(base), os.fsdecode(path))):
                missing = os.path.join(base, os.fsdecode(path))
                kind, text = "missing image", f"image {missing!r} does not exist"
        if kind:
            problems.append(Problem(file, number, kind, text))
        else:
            names.append(path)
            labels.append(label or 0)
            lines.append(number)
    folder = base or image_folder(file, "")
    return ImageList(file, folder, names, labels, lines, problems), problems


def image_folder(file: Path, name: str) -> Path:
    """Return the folder that a list's paths are relative to: the one that has its first image."""
    own = file.parent / file.stem
    for folder in (own, file.parent):
        if os.path.isfile(found_path(str(folder), name)):
            return folder
    return own if own.is_dir() else file.parent


def _fields(file: Path) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the number and the (path, label) of every nonblank line."""
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            # A path may contain spaces; the label follows the last one.
            fields = line.rsplit(None, 1)
            if fields:
                yield number, fields


def _number(fields: list[bytes]) -> int | None:
    try:
        return int(fields[1])
    except (IndexError, ValueError):
        return None


def _no_label(fields: list[bytes]) -> tuple[str, str]:
    path = os.fsdecode(fields[0])
    if len(fields) == 1:
        return "no label", f"no label after {path!r}"
    return "no label", f"label {os.fsdecode(fields[1])!r} of {path!r} is not a whole number"
