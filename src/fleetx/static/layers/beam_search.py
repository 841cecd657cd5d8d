"""Beam search on variable-length data: one step, and backtracking over all steps."""

from __future__ import annotations

from typing import Any

from fleetx.static.building.one_op import WIDE
from fleetx.static.building.op_layer import op_layer
from fleetx.static.graph.variable import Variable

__all__ = ["beam_search", "beam_search_decode"]


@op_layer(
    "pre_ids=pre_ids pre_scores=pre_scores ids=ids scores=scores",
    output="selected_scores:pre_scores selected_ids:pre_ids parent_idx:int32",
    returns="selected_ids selected_scores parent_idx?return_parent_idx",
    pre_ids=("int64",),
    pre_scores=WIDE,
    ids=Variable | None,
    scores=WIDE,
)
def beam_search(
    pre_ids: Variable,
    pre_scores: Variable,
    ids: Variable | None,
    scores: Variable,
    beam_size: int,
    end_id: int,
    level: int = 0,
    is_accumulated: bool = True,
    name: str | None = None,
    return_parent_idx: bool = False,
) -> Any:
    """Choose the best next words; return their ids and scores (and the beams they extend).

    Args:
        pre_ids: the words chosen in the previous step, shape [rows, 1].
        pre_scores: their scores.
        ids: the candidates that may follow each, shape [rows, K]; 0 to K - 1 by default.
        scores: the scores of the candidates, with the offsets of sources and beams.
        beam_size: the number of words kept per source.
        end_id: the word that ends a sequence.
        level: the level of offsets that separates sources.
        is_accumulated: whether scores are accumulated over the steps; otherwise they are
            probabilities, whose logarithms are added to `pre_scores`.
        return_parent_idx: whether to return the row that each word extends.
    """


@op_layer(
    "ids scores",
    output="SentenceIds SentenceScores:float32",
    returns="SentenceIds SentenceScores",
    ids=("int64",),
    scores=("float32",),
)
def beam_search_decode(
    ids: Variable, scores: Variable, beam_size: int, end_id: int, name: str | None = None
) -> tuple[Variable, Variable]:
    """Return the sequences of each source and their scores, from arrays with the choices per step.

    Both results have two levels of offsets: sequences of each source, best first, and words of each
    sequence.
    """
