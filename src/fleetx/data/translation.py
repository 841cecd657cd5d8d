"""Pairs of sentences for translation, in batches of about the same number of tokens.

A line is a sentence and its translation, separated by a tab, with tokens (byte pairs, as in the
files `*.tok.clean.bpe.32000.en-de` of WMT'16) separated by spaces. A vocabulary such as
`vocab_all.bpe.32000` has one token per line and begins with <s>, <e> and <unk>.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from fleetx.data.text_lines import (
    Files,
    Line,
    check_shard,
    counting_reader,
    list_files,
    parse_lines,
    read_lines,
    shuffled,
    take_share,
)

Array = np.ndarray[Any, Any]
Pair = tuple[list[int], list[int]]
BEGIN, END, UNKNOWN = "<s>", "<e>", "<unk>"
# Sentences sorted by length together, so that those of a batch have similar lengths.
_SORTED_AT_ONCE = 16384


@dataclass(frozen=True, kw_only=True)
class TranslationConfig:
    """The settings of batches of sentence pairs."""

    batch_size: int = 2048
    """The number of tokens of a batch on the longer side, including padding."""
    longest: int = 256
    """The maximum length of a sentence with its end; longer ones are dropped."""
    shuffle: bool = False
    """Whether lines and batches are shuffled, differently in every pass."""
    seed: int = 0
    """The seed of shuffling."""

    def __post_init__(self) -> None:
        if self.longest < 2:
            raise ValueError(f"longest must be at least 2, not {self.longest}.")
        if self.batch_size < self.longest:
            raise ValueError(
                f"batch_size counts tokens, so it must be at least the longest sentence "
                f"({self.longest}), not {self.batch_size}."
            )


def load_vocabulary(path: str | Path, most: int | None = None) -> dict[str, int]:
    """Return tokens and their indices; `most` is the size of their table."""
    ids: dict[str, int] = {}
    for line in read_lines(list_files(path)):
        if line.text in ids:
            raise line.error(f"the token {line.text!r} is already on line {ids[line.text] + 1}.")
        ids[line.text] = len(ids)
    missing = [token for token in (BEGIN, END, UNKNOWN) if token not in ids]
    if missing:
        raise ValueError(f"The vocabulary {path} lacks {', '.join(missing)}.")
    if most is not None and len(ids) > most:
        raise ValueError(f"The vocabulary {path} has {len(ids)} tokens, but the model has {most}.")
    return ids


def parse_line(line: Line, ids: dict[str, int]) -> Pair:
    """Return the tokens of a sentence and of its translation, each with its end token."""
    sides = line.text.split("\t")
    if len(sides) != 2 or not all(side.split() for side in sides):
        raise line.error("a line is a sentence, a tab, and its translation.")
    source, target = ([ids.get(t, ids[UNKNOWN]) for t in side.split()] for side in sides)
    return [*source, ids[END]], [*target, ids[END]]


def batch_pairs(pairs: Iterable[Pair], tokens: int) -> Iterator[list[Pair]]:
    """Group pairs of similar length into batches of at most that many tokens."""
    stream = iter(pairs)
    while window := list(islice(stream, _SORTED_AT_ONCE)):
        window.sort(key=lambda pair: (max(map(len, pair)), len(pair[1])))
        batch: list[Pair] = []
        for pair in window:
            # Sorted: the current pair is the longest.
            if batch and (len(batch) + 1) * max(map(len, pair)) > tokens:
                yield batch
                batch = []
            batch.append(pair)
        yield batch


def pad_batch(batch: list[Pair], begin: int, end: int) -> dict[str, Array]:
    """Return arrays [N, longest]: source, target (input), label (the next token).

    `source_padding` and `target_padding` are True where a sentence has ended.
    """
    source, source_padding = _padded([source for source, _ in batch], end)
    target, target_padding = _padded([[begin, *target[:-1]] for _, target in batch], end)
    label, _ = _padded([target for _, target in batch], end)
    return {
        "source": source,
        "target": target,
        "label": label,
        "source_padding": source_padding,
        "target_padding": target_padding,
    }


def _padded(sentences: list[list[int]], filler: int) -> tuple[Array, Array]:
    shape = len(sentences), max(map(len, sentences))
    block, padding = np.full(shape, filler, "int64"), np.ones(shape, bool)
    for row, sentence in enumerate(sentences):
        block[row, : len(sentence)] = sentence
        padding[row, : len(sentence)] = False
    return block, padding


def as_paddle_feed(batch: dict[str, Array]) -> tuple[Array, ...]:
    """Return a batch in the form of Paddle's Transformer.

    src_word, src_pos [N, S, 1], src_slf_attn_bias [N, 1, 1, S]; trg_word, trg_pos [N, T, 1],
    trg_slf_attn_bias [N, 1, T, T], trg_src_attn_bias [N, 1, 1, S]; lbl_word, lbl_weight [N*T, 1].
    """
    hidden = np.float32(-1e9)
    source_bias = (batch["source_padding"] * hidden)[:, None, None, :]
    length = batch["target"].shape[1]
    later = np.triu(np.ones((length, length), bool), 1)
    target_bias = ((batch["target_padding"][:, None, :] | later) * hidden)[:, None]
    weight = (~batch["target_padding"]).astype("float32")
    return (
        batch["source"][:, :, None],
        _positions(batch["source"]),
        source_bias,
        batch["target"][:, :, None],
        _positions(batch["target"]),
        target_bias,
        source_bias,
        batch["label"].reshape(-1, 1),
        weight.reshape(-1, 1),
    )


def _positions(block: Array) -> Array:
    return np.ascontiguousarray(np.broadcast_to(np.arange(block.shape[1]), block.shape))[:, :, None]


def batches(
    files: Files,
    vocabulary: dict[str, int],
    config: TranslationConfig | None = None,
    *,
    shard: tuple[int, int] = (0, 1),
) -> Callable[[int], Iterator[dict[str, Array]]]:
    """Return a function from a pass's index to its batches, see `pad_batch`.

    Args:
        files: a file, a folder or a list; names that end in .gz are decompressed.
        vocabulary: as `load_vocabulary` returns it.
        config: sizes and options.
        shard: (rank of this worker, number of workers): batches are assigned round-robin, so
            that all get the same number.
    """
    paths, made, (index, count) = list_files(files), config or TranslationConfig(), shard
    check_shard(index, count)

    def one_pass(epoch: int) -> Iterator[dict[str, Array]]:
        seed = f"{made.seed} {epoch}"
        lines: Iterable[Line] = read_lines(paths)
        if made.shuffle:
            lines = shuffled(lines, seed)
        pairs = parse_lines(lines, lambda line: parse_line(line, vocabulary))
        short = (pair for pair in pairs if max(map(len, pair)) <= made.longest)
        grouped: Iterable[list[Pair]] = batch_pairs(short, made.batch_size)
        if made.shuffle:
            grouped = shuffled(grouped, f"{seed} batches")
        for batch in take_share(grouped, index, count):
            yield pad_batch(batch, vocabulary[BEGIN], vocabulary[END])

    return one_pass


def reader(
    files: Files,
    vocabulary: dict[str, int],
    config: TranslationConfig | None = None,
    *,
    shard: tuple[int, int] = (0, 1),
) -> Callable[[], Iterator[tuple[Array, ...]]]:
    """Return a Paddle reader of batches, see `as_paddle_feed`, for set_batch_generator."""
    made = batches(files, vocabulary, config, shard=shard)
    return counting_reader(lambda epoch: map(as_paddle_feed, made(epoch)))
