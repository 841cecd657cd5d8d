"""Text for word2vec: skip-gram pairs with negative samples (Mikolov et al., 2013).

A dictionary is a file of lines "word count". A word predicts the words around it, up to a random
distance of at most `window_size` (positives), against `nce_num` other words, drawn by count ** 0.75
(negatives). Frequent words may be dropped at random (`subsample`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fleetx.checkpoint.atomic import atomic_write
from fleetx.data.text_lines import Files, counting_reader, epoch_lines, list_files, read_lines

if TYPE_CHECKING:
    from fleetx.data.sample_stream import SampleStream

Array = np.ndarray[Any, Any]
Sample = tuple[Array, Array, Array]
UNKNOWN = "<UNK>"


class WordDictionary(NamedTuple):
    """Words, numbered in the order of their file, and their counts."""

    numbers: dict[str, int]
    counts: Array

    def encode(self, text: str) -> Array:
        """Return the indices of the words of a line; unknown ones are <UNK>, or dropped."""
        unknown = self.numbers.get(UNKNOWN, -1)
        found = (self.numbers.get(word, unknown) for word in text.split())
        return np.fromiter((number for number in found if number >= 0), np.int64)


def load_dictionary(path: str | Path) -> WordDictionary:
    """Read a file of lines "word count"."""
    numbers: dict[str, int] = {}
    counts: list[int] = []
    for line in read_lines(list_files(path)):
        if not line.text.strip():
            continue
        fields = line.text.split()
        if len(fields) != 2 or not fields[1].isdecimal() or int(fields[1]) == 0:
            raise line.error(
                f"a line is 'word count', with a count of at least 1, not {line.text!r}."
            )
        if fields[0] in numbers:
            raise line.error(f"the word {fields[0]!r} is already on line {numbers[fields[0]] + 1}.")
        numbers[fields[0]] = len(numbers)
        counts.append(int(fields[1]))
    if not numbers:
        raise ValueError(f"The dictionary {path} is empty: it needs lines 'word count'.")
    return WordDictionary(numbers, np.array(counts, "int64"))


def build_dictionary(files: Files, path: str | Path, *, min_count: int = 1) -> WordDictionary:
    """Count the words of text files and write the dictionary, by frequency.

    Words with less than `min_count` occurrences are counted together, as <UNK>.
    """
    seen: Counter[str] = Counter()
    for line in read_lines(list_files(files)):
        seen.update(line.text.split())
    kept = {word: count for word, count in seen.items() if count >= min_count}
    rest = seen.total() - sum(kept.values())
    if rest:
        kept[UNKNOWN] = kept.get(UNKNOWN, 0) + rest
    if not kept:
        raise ValueError("The files of the dictionary contain no words.")
    with atomic_write(path) as stream:
        for word, count in sorted(kept.items(), key=lambda item: (-item[1], item[0])):
            stream.write(f"{word} {count}\n".encode())
    return load_dictionary(path)


class SkipGram:
    """Generator of samples from lines; one instance per pass, with its own random generator."""

    def __init__(
        self,
        words: WordDictionary,
        *,
        window_size: int = 5,
        nce_num: int = 5,
        subsample: float = 0.0,
        rng: np.random.Generator | None = None,
    ) -> None:
        if window_size < 1 or nce_num < 0 or subsample < 0:
            raise ValueError(
                f"window_size must be at least 1, nce_num and subsample at least 0, not "
                f"{window_size}, {nce_num} and {subsample}."
            )
        self._words, self._window, self._nce_num = words, window_size, nce_num
        self._rng = rng or np.random.default_rng()
        weights = words.counts.astype("float64") ** 0.75
        self._cumulated = np.cumsum(weights / weights.sum())
        self._keep: Array | None = None
        if subsample:
            share = words.counts / words.counts.sum() / subsample
            self._keep = np.minimum(1.0, (np.sqrt(share) + 1) / share)

    def negatives(self, rows: int) -> Array:
        """Draw `nce_num` words for each of `rows` samples, by count ** 0.75."""
        drawn = self._cumulated.searchsorted(self._rng.random((rows, self._nce_num)), "right")
        # Due to rounding, the last sum may be slightly below 1.
        return np.minimum(drawn, len(self._cumulated) - 1)

    def samples(self, text: str) -> Iterator[Sample]:
        """Yield ([word], [neighbouring word], negative words) for all pairs of a line."""
        numbers = self._words.encode(text)
        if self._keep is not None:
            numbers = numbers[self._rng.random(len(numbers)) < self._keep[numbers]]
        reach = self._rng.integers(1, self._window + 1, len(numbers))
        steps = np.concatenate([np.arange(-self._window, 0), np.arange(1, self._window + 1)])
        beside = np.arange(len(numbers))[:, None] + steps
        is_pair = (beside >= 0) & (beside < len(numbers)) & (abs(steps) <= reach[:, None])
        words = numbers[np.nonzero(is_pair)[0]].reshape(-1, 1)
        yield from zip(
            words,
            numbers[beside[is_pair]].reshape(-1, 1),
            self.negatives(len(words)),
            strict=True,
        )


def dataset(
    dict_path: str | Path,
    files: Files,
    *,
    window_size: int = 5,
    nce_num: int = 5,
    subsample: float = 0.0,
    shuffle: bool = False,
    seed: int = 0,
    shard: tuple[int, int] = (0, 1),
) -> SampleStream:
    """Return a data set of ([word], [neighbouring word], negatives) for torch's DataLoader.

    Args:
        dict_path: file of lines "word count".
        files: text, a sentence per line; a file, a folder or a list.
        window_size: the maximum distance between the words of a pair.
        nce_num: the number of negative words per pair.
        subsample: the frequency above which a word is subsampled (1e-3 to 1e-5); 0 keeps all.
        shuffle: shuffle the lines, differently in every epoch.
        seed: the seed of all random choices, which differ by epoch and worker.
        shard: (rank of this worker, number of workers); all get the same number of lines.
    """
    from fleetx.data.sample_stream import SampleStream

    options = {"window_size": window_size, "nce_num": nce_num, "subsample": subsample}
    return SampleStream(_samples(dict_path, files, options, shuffle, seed, shard))


def reader(
    dict_path: str | Path,
    files: Files,
    *,
    window_size: int = 5,
    nce_num: int = 5,
    subsample: float = 0.0,
    shuffle: bool = False,
    seed: int = 0,
    shard: tuple[int, int] = (0, 1),
) -> Callable[[], Iterator[Sample]]:
    """Return a Paddle reader of input_word, true_label and neg_label; see `dataset`."""
    options = {"window_size": window_size, "nce_num": nce_num, "subsample": subsample}
    return counting_reader(_samples(dict_path, files, options, shuffle, seed, shard))


def _samples(
    dict_path: str | Path,
    files: Files,
    options: dict[str, Any],
    shuffle: bool,
    seed: int,
    shard: tuple[int, int],
) -> Callable[[int], Iterator[Sample]]:
    words, lines = load_dictionary(dict_path), epoch_lines(files, shard, shuffle, seed)
    SkipGram(words, **options)  # validates the options early

    def samples(epoch: int) -> Iterator[Sample]:
        skip_gram = SkipGram(words, **options, rng=np.random.default_rng([seed, epoch, shard[0]]))
        for line in lines(epoch):
            yield from skip_gram.samples(line.text)

    return samples
