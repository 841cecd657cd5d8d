"""Lines of text files: numbered for errors, sharded over workers, shuffled with a seed.

The common part of Criteo's and the text data sets. A line has its file and number, so that an
invalid one can be found; files may be gzipped.
"""

from __future__ import annotations

import gzip
import random
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
Files = str | Path | Iterable[str | Path]
# The window of shuffling in lines; beyond it, order is kept.
_SHUFFLED_AT_ONCE = 65536


class Line(NamedTuple):
    """A line and its position."""

    path: Path
    number: int
    text: str

    def error(self, problem: str) -> ValueError:
        """Return an error about this line."""
        return ValueError(f"{self.path}, line {self.number}: {problem}")


def list_files(files: Files) -> list[Path]:
    """Return the files of a path, a folder (all files in it, by name) or a list of both."""
    given = [files] if isinstance(files, (str, Path)) else list(files)
    found: list[Path] = []
    for path in map(Path, given):
        if path.is_dir():
            inside = sorted(p for p in path.iterdir() if p.is_file() and p.name[0] != ".")
            if not inside:
                raise FileNotFoundError(f"The folder {path} holds no files to read.")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise FileNotFoundError(f"There is no file {path} to read.")
    if not found:
        raise ValueError("The list of files to read is empty.")
    return found


def read_lines(files: Iterable[Path]) -> Iterator[Line]:
    """Yield the lines of files, in order, without line ends."""
    for path in files:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as stream:
            for number, content in enumerate(stream, 1):
                try:
                    text = content.decode("utf-8")
                except UnicodeDecodeError as error:
                    raise ValueError(
                        f"{path}, line {number}: not UTF-8 text (byte {error.start})."
                    ) from error
                yield Line(path, number, text.rstrip("\r\n"))


def take_share(items: Iterable[T], index: int, count: int) -> Iterator[T]:
    """Yield every `count`-th item from `index`, as long as all workers have one.

    The last, incomplete round is dropped, so that all workers get the same number.
    """
    check_shard(index, count)
    own: list[T] = []
    for number, item in enumerate(items):
        if number % count == index:
            own.append(item)
        if number % count == count - 1:
            yield own.pop()


def epoch_lines(
    files: Files, shard: tuple[int, int], shuffle: bool, seed: int
) -> Callable[[int], Iterator[Line]]:
    """Return a function from an epoch to a worker's shard of its lines, optionally shuffled."""
    paths, (index, count) = list_files(files), shard
    check_shard(index, count)

    def lines(epoch: int) -> Iterator[Line]:
        own = take_share(read_lines(paths), index, count)
        return shuffled(own, f"{seed} {epoch} {index}") if shuffle else own

    return lines


def check_shard(index: int, count: int) -> None:
    """Reject a shard that does not exist."""
    if not 0 <= index < count:
        raise ValueError(f"shard {index} of {count} is out of range: shards are numbered from 0.")


def shuffled(items: Iterable[T], seed: str) -> Iterator[T]:
    """Shuffle items in large windows; the same seed gives the same order."""
    mixer, window = random.Random(seed), []
    for item in items:
        window.append(item)
        if len(window) == _SHUFFLED_AT_ONCE:
            mixer.shuffle(window)
            yield from window
            window = []
    mixer.shuffle(window)
    yield from window


def parse_lines(
    lines: Iterable[Line], parse: Callable[[Line], T], on_error: str = "raise"
) -> Iterator[T]:
    """Parse lines; an invalid one raises, or is skipped and counted in one final warning."""
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error must be 'raise' or 'skip', not {on_error!r}.")
    skipped, read, first = 0, 0, ""
    for line in lines:
        read += 1
        try:
            sample = parse(line)
        except ValueError as error:
            if on_error == "raise":
                raise
            skipped, first = skipped + 1, first or str(error)
            continue
        yield sample
    if skipped:
        warnings.warn(f"skipped {skipped} of {read} lines; the first: {first}", stacklevel=2)


def counting_reader(samples: Callable[[int], Iterator[Any]]) -> Callable[[], Iterator[Any]]:
    """Return a Paddle reader: a function without arguments whose n-th call yields epoch n."""
    passes = iter(range(2**62))
    return lambda: samples(next(passes))
