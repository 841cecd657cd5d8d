"""Check of a whole ImageNet data set: every line of its lists and every image.

Images are decoded completely, by several processes. `fleetx data check` prints the findings.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from fleetx.data.image_decode import UnreadableImage, check_image
from fleetx.data.imagenet_list import ImageList, Problem, found_path, image_problem, scan_list

_AT_ONCE = 16  # images per task of a process: one result per image would be slower
_WAIT_SECONDS = 0.5  # for one result, before asking again


class Image(NamedTuple):
    """An image that was checked."""

    bytes: int
    width: int
    height: int
    colour: str


@dataclass
class Findings:
    """The findings of one list."""

    file: Path
    lines: int
    """Images in the list; some may be missing."""
    classes: set[int]
    problems: list[Problem]
    images: int = 0
    bytes: int = 0
    colours: Counter[str] = field(default_factory=Counter)
    widths: list[int] = field(default_factory=list)
    heights: list[int] = field(default_factory=list)

    def add(self, found: Image | Problem) -> None:
        """Count an image, or add its problem."""
        if isinstance(found, Problem):
            self.problems.append(found)
            return
        self.images += 1
        self.bytes += found.bytes
        self.colours[found.colour] += 1
        self.widths.append(found.width)
        self.heights.append(found.height)


def find_lists(root: Path, names: Sequence[str] | None) -> list[Path]:
    """Return the lists to check: those given, or train.txt and val.txt if they exist."""
    if names:
        return [root / name for name in names]
    lists = [root / name for name in ("train.txt", "val.txt") if (root / name).is_file()]
    if not lists:
        raise FileNotFoundError(
            f"there is no train.txt or val.txt in {str(root)!r}: pass the folder that holds them, "
            "or the lists by --list."
        )
    return lists


def open_list(file: Path, num_classes: int) -> tuple[ImageList, Findings]:
    """Read a list; return its valid lines, and findings that start with its invalid ones."""
    images, problems = scan_list(file, num_classes=num_classes)
    found = Findings(file, len(images), set(images.labels.tolist()), problems)
    if not len(images) and not problems:
        found.problems.append(Problem(file, 1, "empty list", "the list names no image"))
    return images, found


@contextmanager
def checkers(jobs: int) -> Iterator[Any]:
    """Provide a pool of processes that check images, which end with the block."""
    # Spawned processes inherit no locks of this process's threads. Ctrl-C is handled only by this
    # process, which then ends the others; they inherit that the signal is ignored.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        pool = multiprocessing.get_context("spawn").Pool(jobs)
    finally:
        signal.signal(signal.SIGINT, before)
    with pool:
        yield pool


def check_images(images: ImageList, pool: Any) -> Iterator[Image | Problem]:
    """Yield the finding of every image, in the order of the list."""
    tasks = (
        (str(images.file), str(images.folder), images.line(i), images.name(i))
        for i in range(len(images))
    )
    found = pool.imap(_check_all, iter(lambda: list(islice(tasks, _AT_ONCE)), []))
    while True:
        try:
            # With a timeout: an interrupt just before an endless wait would not end it.
            chunk = found.next(_WAIT_SECONDS)
        except multiprocessing.TimeoutError:
            continue
        except StopIteration:
            return
        yield from chunk


def _check_all(tasks: list[tuple[str, str, int, str]]) -> list[Image | Problem]:
    return [_check(task) for task in tasks]


def _check(task: tuple[str, str, int, str]) -> Image | Problem:
    file, folder, line, name = task
    path = found_path(folder, name)
    try:
        data = Path(path).read_bytes()
        header = check_image(data)
    except (OSError, UnreadableImage) as error:
        return image_problem(Path(file), line, path, error)
    return Image(len(data), header.width, header.height, header.colour)
