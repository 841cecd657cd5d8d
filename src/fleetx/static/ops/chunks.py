"""Chunks in tagged sequences: how many are predicted, true, and predicted correctly."""

from __future__ import annotations

import torch

from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_registry import detached_op
from fleetx.static.shapes.infer_rules import shapes
from fleetx.static.shapes.lod import Lods, lod_of

# For each scheme, the tags (in order) that begin, continue, end and make up a whole chunk.
_TAGS = {
    "plain": ("single",),
    "IOB": ("begin", "inside"),
    "IOE": ("inside", "end"),
    "IOBES": ("begin", "inside", "end", "single"),
}


def find_chunks(
    tags: list[int], scheme: str, types: int, excluded: frozenset[int] = frozenset()
) -> set[tuple[int, int, int]]:
    """Return (first, last, type) of the chunks in a sequence of tags.

    A tag is type * (tags per type) + place; the number after the last type means 'outside'.
    """
    names = _TAGS[scheme]
    found: set[tuple[int, int, int]] = set()
    start, kind, last = -1, -1, ""

    def close(end: int) -> None:
        if start >= 0 and kind not in excluded:
            found.add((start, end, kind))

    for i, tag in enumerate(tags):
        outside = tag < 0 or tag >= types * len(names)
        new_kind, place = (
            (-1, "outside") if outside else (tag // len(names), names[tag % len(names)])
        )
        joins = start >= 0 and new_kind == kind and not outside and _continues(last, place, scheme)
        if not joins:
            close(i - 1)
            start, kind = (-1, -1) if outside else (i, new_kind)
        last = place
    close(len(tags) - 1)
    return found


def _continues(before: str, place: str, scheme: str) -> bool:
    """Return whether a tag of the same type continues the chunk of the preceding tag."""
    if scheme == "plain":
        return True
    return place in ("inside", "end") and before in ("begin", "inside")


_SCORES = ("Precision", "Recall", "F1-Score")
_COUNTS = ("NumInferChunks", "NumLabelChunks", "NumCorrectChunks")


@detached_op(
    "chunk_eval",
    inputs="Inference Label SeqLength?",
    outputs=" ".join(_SCORES + _COUNTS),
    infer=shapes(
        "",
        lambda op: {
            **dict.fromkeys(_SCORES, ((1,), VarType.FP32)),
            **dict.fromkeys(_COUNTS, ((1,), VarType.INT64)),
        },
    ),
)
def _chunk_eval(
    inference: torch.Tensor,
    label: torch.Tensor,
    seq_length: torch.Tensor | None,
    *,
    num_chunk_types: int = 1,
    chunk_scheme: str = "IOB",
    excluded_chunk_types: list[int] = [],
    lod: Lods,
) -> tuple[torch.Tensor, ...]:
    if chunk_scheme not in _TAGS:
        raise ValueError(f"chunk_scheme must be one of {', '.join(_TAGS)}, not {chunk_scheme!r}.")
    if seq_length is None:
        offsets = lod_of(lod, "Label", "chunk_eval")[-1]
        flat = [x.reshape(-1).tolist() for x in (inference, label)]
        spans = list(zip(offsets[:-1], offsets[1:], strict=True))
        pairs = [(flat[0][a:b], flat[1][a:b]) for a, b in spans]
    else:
        rows = [x.reshape(x.shape[0], -1).tolist() for x in (inference, label)]
        sizes = seq_length.reshape(-1).tolist()
        pairs = [(a[:n], b[:n]) for a, b, n in zip(*rows, sizes, strict=True)]
    excluded = frozenset(excluded_chunk_types)
    counts = [0, 0, 0]
    for ours, theirs in pairs:
        found = find_chunks(ours, chunk_scheme, num_chunk_types, excluded)
        true = find_chunks(theirs, chunk_scheme, num_chunk_types, excluded)
        counts = [counts[0] + len(found), counts[1] + len(true), counts[2] + len(found & true)]
    precision = counts[2] / counts[0] if counts[0] else 0.0
    recall = counts[2] / counts[1] if counts[1] else 0.0
    f1 = 2 * precision * recall / (precision + recall) if counts[2] else 0.0
    device = inference.device
    scores = (torch.tensor([v], device=device) for v in (precision, recall, f1))
    return (*scores, *(torch.tensor([c], device=device) for c in counts))
