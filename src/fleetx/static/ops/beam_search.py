"""Beam search on variable-length data: one step, and reading sequences back from all steps.

The offsets of a step have two levels: the candidates of the step before that belong to each source,
and the words chosen for each of those candidates. A source whose beams have all ended has none.
"""

from __future__ import annotations

from typing import Any

import torch

from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_registry import detached_op
from fleetx.static.shapes.infer_rules import set_output, shapes
from fleetx.static.shapes.lod import LoD, Lods, WithLod, lod_of


@detached_op(
    "beam_search",
    inputs="pre_ids pre_scores ids? scores",
    outputs="selected_ids selected_scores parent_idx?",
    infer=shapes(
        "pre_scores",
        lambda op, scores: {
            "selected_ids": ((-1, 1), VarType.INT64, 2),
            "selected_scores": ((-1, 1), scores.dtype, 2),
            "parent_idx": ((-1,), VarType.INT32),
        },
        rank=None,
    ),
)
def beam_search(
    pre_ids: torch.Tensor,
    pre_scores: torch.Tensor,
    ids: torch.Tensor | None,
    scores: torch.Tensor,
    *,
    level: int = 0,
    beam_size: int = 0,
    end_id: int = 0,
    is_accumulated: bool = True,
    lod: Lods,
) -> Any:
    """Choose, for each source, the best words to go on with, among those of all its beams."""
    offsets = lod_of(lod, "scores", "beam_search")
    sources = _in_rows(offsets, level)
    ended = (pre_ids.flatten() == end_id).tolist()
    before = pre_scores.flatten().tolist()
    totals = scores if is_accumulated else pre_scores.reshape(-1, 1) + scores.log()
    words = None if ids is None else ids.tolist()
    table = totals.tolist()
    chosen: list[list[tuple[int, float]]] = [[] for _ in range(sources[-1])]
    for start, end in zip(sources, sources[1:], strict=False):
        candidates = []
        for row in range(start, end):
            if ended[row]:
                candidates.append((before[row], row, end_id))
            else:
                columns = range(len(table[row])) if words is None else words[row]
                candidates += [(s, row, w) for s, w in zip(table[row], columns, strict=True)]
        best = sorted(candidates, key=lambda c: -c[0])[:beam_size]
        if not all(word == end_id and ended[row] for _, row, word in best):
            for score, row, word in best:
                chosen[row].append((word, score))
    levels = [sources, [0]]
    for found in chosen:
        levels[1].append(levels[1][-1] + len(found))
    flat = [pair for found in chosen for pair in found]
    device = scores.device
    new_ids = torch.tensor([w for w, _ in flat], dtype=torch.int64, device=device).reshape(-1, 1)
    new_scores = torch.tensor([s for _, s in flat], dtype=scores.dtype, device=device)
    parents = torch.tensor(
        [row for row, found in enumerate(chosen) for _ in found], dtype=torch.int32, device=device
    )
    return WithLod(new_ids, levels), WithLod(new_scores.reshape(-1, 1), levels), parents


def _in_rows(offsets: LoD, level: int) -> list[int]:
    """Return the offsets of a level counted in rows."""
    found = list(offsets[level])
    for lower in offsets[level + 1 :]:
        found = [lower[i] for i in found]
    return found


def _infer_decoded(op: Any, block: Any) -> None:
    """Infer from an array, whose own shape may be unknown."""
    set_output(op, block, "SentenceIds", (-1,), VarType.INT64, 2)
    kind = block.var_recursive(op.input("Scores")[0]).dtype
    set_output(op, block, "SentenceScores", (-1,), kind, 2)


@detached_op(
    "beam_search_decode",
    inputs="Ids Scores",
    outputs="SentenceIds SentenceScores",
    attrs={"beam_size": 0},
    infer=_infer_decoded,
)
def beam_search_decode(ids: list[Any], scores: list[Any], *, end_id: int = 0) -> Any:
    """Return the sequences of each source, best first, read back from the last step on."""
    steps = []
    for words, totals in zip(ids, scores, strict=True):
        steps.append((words.tensor.flatten().tolist(), totals.tensor.flatten().tolist(), words.lod))
    sentences: list[list[list[tuple[int, float]]]] = []
    for source in range(len(steps[0][2][0]) - 1):
        sentences.append(_read_back(steps, source, end_id))
    levels: LoD = [[0], [0]]
    flat: list[tuple[int, float]] = []
    for group in sentences:
        for sentence in sorted(group, key=lambda s: -s[0][1]):
            flat += reversed(sentence)
            levels[1].append(len(flat))
        levels[0].append(len(levels[1]) - 1)
    first = scores[0].tensor
    out_ids = torch.tensor([w for w, _ in flat], dtype=torch.int64, device=first.device)
    out_scores = torch.tensor([s for _, s in flat], dtype=first.dtype, device=first.device)
    return WithLod(out_ids, levels), WithLod(out_scores, levels)


def _read_back(steps: list[Any], source: int, end_id: int) -> list[list[tuple[int, float]]]:
    """Return the sentences of a source, last word first."""
    found: list[list[tuple[int, float]]] = []
    at: list[int] = []  # where each sentence is in the step being read
    for words, totals, (sources, candidates) in reversed(steps):
        rows = range(sources[source], sources[source + 1])
        parent = {i: row for row in rows for i in range(candidates[row], candidates[row + 1])}
        if not found:
            at = list(parent)
            found = [[] for _ in at]
        for sentence, i in zip(found, at, strict=True):
            # the end is written once, however long a beam waited for the others
            if words[i] != end_id or not sentence:
                sentence.append((words[i], totals[i]))
        at = [parent[i] for i in at]
    return found
