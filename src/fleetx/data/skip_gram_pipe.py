"""Converter of text on standard input to skip-gram pairs in the multi-slot format.

The pipe command of a dataset for word2vec:
`python -m fleetx.data.skip_gram_pipe DICTIONARY WINDOW NOISE`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from fleetx.data.data_generator import MultiSlotDataGenerator
from fleetx.data.word2vec import SkipGram, load_dictionary

SLOTS = ("input_word", "true_label", "neg_label")


class SkipGramGenerator(MultiSlotDataGenerator):
    """Generator of word pairs with noise from sentences."""

    def __init__(self, dict_path: str, window_size: int, nce_num: int) -> None:
        super().__init__()
        self._pairs = SkipGram(load_dictionary(dict_path), window_size=window_size, nce_num=nce_num)

    def generate_sample(self, line: str | None) -> Callable[[], Iterator[Any]]:
        """Return a function that yields the samples of a sentence."""

        def samples() -> Iterator[Any]:
            for sample in self._pairs.samples(line or ""):
                yield [(name, values.tolist()) for name, values in zip(SLOTS, sample, strict=True)]

        return samples


if __name__ == "__main__":
    dictionary, window, noise = sys.argv[1:4]
    SkipGramGenerator(dictionary, int(window), int(noise)).run_from_stdin()
