"""Beam search on variable-length data: one step, and reading sequences back from all steps."""

from __future__ import annotations

from typing import Any

from fleetx.static.building.argument_checks import check_type, check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.graph.variable import Variable

__all__ = ["beam_search", "beam_search_decode"]

_FLOATS = ["float32", "float64"]


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
    """Choose the best words to go on with; return their ids and scores (and the beams they extend).

    Args:
        pre_ids: the words chosen in the step before, shape [rows, 1].
        pre_scores: their scores.
        ids: the words that may follow each, shape [rows, K]; the K columns themselves without it.
        scores: the scores of those words, with the offsets of sources and beams.
        beam_size: how many words each source keeps.
        end_id: the word that ends a sequence.
        level: the level of offsets that separates sources.
        is_accumulated: whether scores contain those of the words before; otherwise they are
            probabilities, whose logarithms are added to `pre_scores`.
        name: the layer's name.
        return_parent_idx: whether to return the row that each word extends.
    """
    check_variable_and_dtype(pre_ids, "pre_ids", ["int64"], "beam_search")
    check_variable_and_dtype(pre_scores, "pre_scores", _FLOATS, "beam_search")
    check_type(ids, "ids", (Variable, type(None)), "beam_search")
    check_variable_and_dtype(scores, "scores", _FLOATS, "beam_search")
    helper = LayerHelper("beam_search", name=name)
    out_scores = helper.create_variable_for_type_inference(pre_scores.dtype)
    out_ids = helper.create_variable_for_type_inference(pre_ids.dtype)
    parents = helper.create_variable_for_type_inference("int32")
    helper.append_op(
        type="beam_search",
        inputs={"pre_ids": pre_ids, "pre_scores": pre_scores, "ids": ids, "scores": scores},
        outputs={"selected_ids": out_ids, "selected_scores": out_scores, "parent_idx": parents},
        attrs={
            "level": level,
            "beam_size": beam_size,
            "end_id": end_id,
            "is_accumulated": is_accumulated,
        },
    )
    return (out_ids, out_scores, parents) if return_parent_idx else (out_ids, out_scores)


def beam_search_decode(
    ids: Variable, scores: Variable, beam_size: int, end_id: int, name: str | None = None
) -> tuple[Variable, Variable]:
    """Return the sequences of each source and their scores, from arrays of what steps chose.

    Both results have two levels of offsets: sequences of each source, best first, and words of each
    sequence.
    """
    check_variable_and_dtype(ids, "ids", ["int64"], "beam_search_decode")
    check_variable_and_dtype(scores, "scores", ["float32"], "beam_search_decode")
    helper = LayerHelper("beam_search_decode", name=name)
    out_ids, out_scores = helper.outputs_of(
        "beam_search_decode",
        {"Ids": ids, "Scores": scores},
        {"beam_size": beam_size, "end_id": end_id},
        SentenceIds=ids.dtype,
        SentenceScores=scores.dtype,
    )
    return out_ids, out_scores
