"""Plain text for BERT: masked words and next sentences (Devlin et al., 2018).

A file has one sentence per line and an empty line between documents. A sample is a pair of
segments; half of the second ones come from another document of the file. Of 15% of the pieces 80%
are masked, 10% replaced and 10% kept. All random choices are redrawn in every epoch.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fleetx.data.text_lines import (
    Files,
    check_shard,
    counting_reader,
    list_files,
    read_lines,
    shuffled,
)
from fleetx.data.word_pieces import WordPieces

if TYPE_CHECKING:
    from fleetx.data.sample_stream import SampleStream

Array = np.ndarray[Any, Any]
Document = list[list[int]]
IGNORED = -100  # the label of pieces that are not predicted, as in PyTorch's losses
_MASKED, _SHORT = 0.15, 0.1


@dataclass(frozen=True)
class Pair:
    """A sample before masking: pieces with [CLS] and [SEP], and 0 or 1 for their segment."""

    pieces: list[int]
    segments: list[int]
    is_random: int
    """1 if the second segment does not follow the first."""


@dataclass(frozen=True, kw_only=True)
class BertTextConfig:
    """The settings of batches of text."""

    batch_size: int = 4096
    """Pieces per batch, padding included; samples per batch if not `in_tokens`."""
    max_seq_len: int = 512
    """The maximum length of a sample, including [CLS] and both [SEP]."""
    in_tokens: bool = True
    """Whether `batch_size` counts pieces."""
    lowercase: bool = True
    """Whether the vocabulary is in lower case."""
    shuffle: bool = False
    """Whether samples are shuffled."""
    seed: int = 0
    """The seed of all random choices."""

    def __post_init__(self) -> None:
        if self.max_seq_len < 8:
            raise ValueError(f"max_seq_len must be at least 8, not {self.max_seq_len}.")
        if self.in_tokens and self.batch_size < self.max_seq_len:
            raise ValueError(
                f"batch_size counts pieces (in_tokens), so it must be at least max_seq_len "
                f"({self.max_seq_len}), not {self.batch_size}."
            )
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {self.batch_size}.")


def read_documents(path: Path, encode: Callable[[str], list[int]]) -> list[Document]:
    """Return the documents of a file: lists of sentences, which are lists of pieces."""
    documents: list[Document] = [[]]
    for line in read_lines([path]):
        if line.text.strip():
            documents[-1].append(encode(line.text))
        elif documents[-1]:
            documents.append([])
    found = [document for document in documents if any(document)]
    if len(found) < 2:
        raise ValueError(
            f"{path} holds {len(found)} document(s), but sentences that do not follow each other "
            "are taken from another one: put an empty line between documents."
        )
    return found


def make_pairs(
    documents: list[Document], own: Iterable[int], pieces: WordPieces, longest: int, seed: str
) -> Iterator[Pair]:
    """Yield the samples of the documents `own`; second segments come from all documents."""
    rng = random.Random(seed)
    for number in own:
        document, at = documents[number], 0
        while at < len(document):
            # Some samples are short, like the texts that a model is used for.
            room = longest - 3
            target = rng.randint(2, room) if rng.random() < _SHORT else room
            taken = _stretch(document, at, target)
            split = rng.randint(1, max(1, len(taken) - 1))
            first = _joined(taken[:split])
            is_random = len(taken) == 1 or rng.random() < 0.5
            if is_random:
                other = documents[(number + rng.randrange(1, len(documents))) % len(documents)]
                wanted = max(1, target - len(first))
                second = _joined(_stretch(other, rng.randrange(len(other)), wanted))
                taken = taken[:split]  # the rest is used for the next sample
            else:
                second = _joined(taken[split:])
            at += len(taken)
            if first and second:
                _shorten(first, second, room, rng)
                yield _pair(first, second, int(is_random), pieces)


def _stretch(document: Document, at: int, target: int) -> Document:
    """Return sentences from `at` until they have `target` pieces, at least one."""
    taken, length = [], 0
    for sentence in islice(document, at, None):
        taken.append(sentence)
        length += len(sentence)
        if length >= target:
            break
    return taken


def _joined(sentences: Document) -> list[int]:
    return [piece for sentence in sentences for piece in sentence]


def _shorten(first: list[int], second: list[int], room: int, rng: random.Random) -> None:
    """Truncate the longer one, at its start or end, until both fit."""
    while len(first) + len(second) > room:
        longer = first if len(first) > len(second) else second
        surplus = min(len(first) + len(second) - room, abs(len(first) - len(second)) or 1)
        if rng.random() < 0.5:
            del longer[:surplus]
        else:
            del longer[len(longer) - surplus :]


def _pair(first: list[int], second: list[int], is_random: int, pieces: WordPieces) -> Pair:
    content = [pieces.cls, *first, pieces.sep, *second, pieces.sep]
    return Pair(content, [0] * (len(first) + 2) + [1] * (len(second) + 1), is_random)


def batch_pairs(pairs: Iterable[Pair], batch_size: int, in_tokens: bool) -> Iterator[list[Pair]]:
    """Group samples: `batch_size` of them, or as many as have that many pieces after padding."""
    batch: list[Pair] = []
    longest = 0
    for pair in pairs:
        longest = max(longest, len(pair.pieces))
        size = (len(batch) + 1) * (longest if in_tokens else 1)
        if batch and size > batch_size:
            yield batch
            batch, longest = [], len(pair.pieces)
        batch.append(pair)
    if batch:
        yield batch


def mask_batch(batch: list[Pair], pieces: WordPieces, rng: np.random.Generator) -> dict[str, Array]:
    """Pad and mask a batch; names and meanings are those of the transformers package.

    Every sample has at least one piece to predict; `labels` is -100 elsewhere.
    """
    shape = len(batch), max(len(pair.pieces) for pair in batch)
    ids = np.full(shape, pieces.pad, "int64")
    segments, attention = np.zeros(shape, "int64"), np.zeros(shape, "int64")
    for row, pair in enumerate(batch):
        ids[row, : len(pair.pieces)] = pair.pieces
        segments[row, : len(pair.pieces)] = pair.segments
        attention[row, : len(pair.pieces)] = 1
    may_mask = (attention == 1) & (ids != pieces.cls) & (ids != pieces.sep)
    chance = np.where(may_mask, rng.random(shape), 2.0)
    chosen = (chance < _MASKED) | (may_mask & (chance == chance.min(1, keepdims=True)))
    labels = np.where(chosen, ids, IGNORED)
    fate = rng.random(shape)
    ids = np.where(chosen & (fate < 0.8), pieces.mask, ids)
    replaced = chosen & (fate >= 0.8) & (fate < 0.9)
    ids = np.where(replaced, rng.integers(0, pieces.size, shape), ids)
    return {
        "input_ids": ids,
        "token_type_ids": segments,
        "attention_mask": attention,
        "labels": labels,
        "next_sentence_label": np.array([pair.is_random for pair in batch], "int64"),
    }


def as_paddle_feed(batch: dict[str, Array]) -> tuple[Array, ...]:
    """Return a batch in the form of Paddle's BERT.

    src_ids, pos_ids, sent_ids [B, L, 1]; input_mask [B, L, 1] in float32; mask_label and mask_pos
    [M, 1] of the M pieces to predict, indexed over the whole batch; labels [B, 1].
    """
    ids, chosen = batch["input_ids"], batch["labels"] != IGNORED
    positions = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
    return (
        ids[:, :, None],
        (positions * batch["attention_mask"])[:, :, None],
        batch["token_type_ids"][:, :, None],
        batch["attention_mask"][:, :, None].astype("float32"),
        batch["labels"][chosen][:, None],
        np.flatnonzero(chosen)[:, None],
        batch["next_sentence_label"][:, None],
    )


def dataset(
    files: Files,
    vocab: str | Path,
    config: BertTextConfig | None = None,
    *,
    shard: tuple[int, int] = (0, 1),
) -> SampleStream:
    """Return a data set of batches (dicts of arrays) for DataLoader(..., batch_size=None).

    Args:
        files: text, a sentence per line, documents separated by an empty line.
        vocab: BERT's vocabulary, one piece per line.
        config: sizes and options.
        shard: (rank of this worker, number of workers): documents are assigned round-robin.
            Workers may get different numbers of batches.
    """
    from fleetx.data.sample_stream import SampleStream

    return SampleStream(_batches(files, vocab, config or BertTextConfig(), shard))


def reader(
    files: Files,
    vocab: str | Path,
    config: BertTextConfig | None = None,
    *,
    shard: tuple[int, int] = (0, 1),
) -> Callable[[], Iterator[tuple[Array, ...]]]:
    """Return a Paddle reader of batches, see `as_paddle_feed`, for set_batch_generator."""
    batches = _batches(files, vocab, config or BertTextConfig(), shard)
    return counting_reader(lambda epoch: map(as_paddle_feed, batches(epoch)))


def _batches(
    files: Files, vocab: str | Path, config: BertTextConfig, shard: tuple[int, int]
) -> Callable[[int], Iterator[dict[str, Array]]]:
    paths, pieces = list_files(files), WordPieces(vocab, lowercase=config.lowercase)
    check_shard(*shard)

    def batches(epoch: int) -> Iterator[dict[str, Array]]:
        seed = f"{config.seed} {epoch} {shard[0]}"
        pairs = _pairs(paths, pieces, config.max_seq_len, shard, seed)
        if config.shuffle:
            pairs = shuffled(pairs, seed)
        rng = np.random.default_rng([config.seed, epoch, shard[0]])
        for batch in batch_pairs(pairs, config.batch_size, config.in_tokens):
            yield mask_batch(batch, pieces, rng)

    return batches


def _pairs(
    paths: list[Path], pieces: WordPieces, longest: int, shard: tuple[int, int], seed: str
) -> Iterator[Pair]:
    index, count = shard
    for path in paths:
        documents = read_documents(path, pieces.encode)
        own = range(index, len(documents), count)
        yield from make_pairs(documents, own, pieces, longest, f"{seed} {path.name}")
