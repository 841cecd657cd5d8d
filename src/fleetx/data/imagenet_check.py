"""Looking through a whole ImageNet data set: every line of its lists and every image.

Images are decoded completely, by several processes. `fleetx data check` prints what is found.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fleetx.data.image_decode import UnreadableImage, check_image
from fleetx.data.imagenet_list import ImageList, Problem, found_path, scan_list

_AT_ONCE = 16  # images that a process takes at a time: an answer per image would cost more


class Image(NamedTuple):
    """One image as it was found."""

    bytes: int
    width: int
    height: int
    colour: str


@dataclass
class Findings:
    """What was found in one list."""

    file: Path
    lines: int
    """Images that the list names; some may be missing."""
    classes: set[int]
    problems: list[Problem]
    images: int = 0
    bytes: int = 0
    colours: Counter[str] = field(default_factory=Counter)
    widths: list[int] = field(default_factory=list)
    heights: list[int] = field(default_factory=list)

    def add(self, found: Image | Problem) -> None:
        """Count an image, or note what is wrong with it."""
        if isinstance(found, Problem):
            self.problems.append(found)
            return
        self.images += 1
        self.bytes += found.bytes
        self.colours[found.colour] += 1
        self.widths.append(found.width)
        self.heights.append(found.height)


def find_lists(root: Path, names: Sequence[str] | None) -> list[Path]:
    """Return the lists to look through: those named, or train.txt and val.txt where they are."""
    if names:
        return [root / name for name in names]
    lists = [root / name for name in ("train.txt", "val.txt") if (root / name).is_file()]
    if not lists:
        raise FileNotFoundError(
            f"there is no train.txt or val.txt in {str(root)!r}: name the folder that holds them, "
            "or the lists by --list."
        )
    return lists


def open_list(file: Path, num_classes: int) -> tuple[ImageList, Findings]:
    """Read a list and return its good lines, and findings that begin with what is wrong there."""
    images, problems = scan_list(file, num_classes=num_classes)
    found = Findings(file, len(images), set(images.labels.tolist()), problems)
    if not len(images) and not problems:
        found.problems.append(Problem(file, 1, "empty list", "the list names no image"))
    return images, found


@contextmanager
def checkers(jobs: int) -> Iterator[Any]:
    """Give a pool of processes that check images; they end with the block, whatever ends it."""
    # Processes started anew have no locks of this one's threads. The interrupt key is for this
    # process only, which then ends the others; what is ignored when they start, they ignore.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        pool = multiprocessing.get_context("spawn").Pool(jobs)
    finally:
        signal.signal(signal.SIGINT, before)
    with pool:
        yield pool


def check_images(images: ImageList, pool: Any) -> Iterator[Image | Problem]:
    """Yield what was found of every image, in the list's order."""
    tasks = (
        (str(images.file), str(images.folder), images.line(i), images.name(i))
        for i in range(len(images))
    )
    return pool.imap(_check, tasks, chunksize=_AT_ONCE)


def _check(task: tuple[str, str, int, str]) -> Image | Problem:
    file, folder, line, name = task
    path = found_path(folder, name)
    try:
        data = Path(path).read_bytes()
        header = check_image(data)
    except FileNotFoundError:
        return Problem(Path(file), line, "missing image", f"image {path!r} is not there")
    except (OSError, UnreadableImage) as error:
        text = f"image {path!r} cannot be used: {error}"
        return Problem(Path(file), line, "unreadable image", text)
    return Image(len(data), header.width, header.height, header.colour)
