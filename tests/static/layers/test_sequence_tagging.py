"""Tagging, CTC and beams: values against all paths, written out in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from op_check import check_op
from sequence_cases import LENGTHS, RNG, lod_of, rows, split


def all_paths(emission: np.ndarray, transition: np.ndarray) -> dict[tuple[int, ...], float]:
    """Return the score of every sequence of tags."""
    steps, tags = emission.shape
    scores = {}
    for path in np.ndindex(*([tags] * steps)):
        score = transition[0, path[0]] + transition[1, path[-1]]
        score += sum(emission[t, tag] for t, tag in enumerate(path))
        score += sum(transition[a + 2, b] for a, b in zip(path, path[1:], strict=False))
        scores[path] = float(score)
    return scores


def test_linear_chain_crf_and_decoding() -> None:
    emission, transition = rows(6, 3), rows(5, 3)
    label = RNG.integers(0, 3, (6, 1))
    costs, best = [], []
    for e, y in zip(split(emission, LENGTHS), split(label, LENGTHS), strict=True):
        scores = all_paths(e, transition)
        total = np.log(np.sum(np.exp(list(scores.values()))))
        costs.append([total - scores[tuple(y[:, 0].tolist())]])
        best += max(scores, key=scores.__getitem__)
    inputs = {"Emission": (emission, [LENGTHS]), "Transition": transition}
    labelled = {**inputs, "Label": (label, [LENGTHS])}
    check_op("linear_chain_crf", labelled, outputs={"LogLikelihood": np.array(costs)})
    path = np.array(best)[:, None]
    check_op("crf_decoding", inputs, outputs={"ViterbiPath": path})
    check_op("crf_decoding", labelled, outputs={"ViterbiPath": (path == label).astype("int64")})


def test_linear_chain_crf_on_padded_sequences() -> None:
    emission, transition = rows(2, 3, 3), rows(5, 3)
    label, length = RNG.integers(0, 3, (2, 3)), np.array([[3], [2]])
    costs, paths = [], np.zeros((2, 3), "int64")
    for n, size in enumerate([3, 2]):
        scores = all_paths(emission[n, :size], transition)
        total = np.log(np.sum(np.exp(list(scores.values()))))
        costs.append([total - scores[tuple(label[n, :size].tolist())]])
        paths[n, :size] = max(scores, key=scores.__getitem__)
    inputs = {"Emission": emission, "Transition": transition, "Length": length}
    check_op(
        "linear_chain_crf",
        {**inputs, "Label": label},
        outputs={"LogLikelihood": np.array(costs)},
    )
    check_op("crf_decoding", inputs, outputs={"ViterbiPath": paths})


@pytest.mark.parametrize("normalized", [True, False])
def test_edit_distance(normalized: bool) -> None:
    hyps = np.array([[1], [2], [3], [4], [1], [1]])
    refs = np.array([[1], [3], [3], [4], [5], [2], [2], [1]])
    distances = np.array([[1.0], [1.0], [2.0]], "float32")
    if normalized:
        distances /= np.array([[3], [2], [3]], "float32")
    check_op(
        "edit_distance",
        {"Hyps": (hyps, [[3, 1, 2]]), "Refs": (refs, [[3, 2, 3]])},
        {"normalized": normalized},
        {"SequenceNum": np.array([3]), "Out": distances},
    )


# -- CTC and beams -------------------------------------------------------------------------------
def collapse(path: tuple[int, ...], blank: int = 0) -> list[int]:
    kept = [p for i, p in enumerate(path) if i == 0 or p != path[i - 1]]
    return [p for p in kept if p != blank]


def ctc_cost(logits: np.ndarray, label: list[int]) -> float:
    """Add up the probabilities of all paths that read as the label."""
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    total = 0.0
    for path in np.ndindex(*([logits.shape[1]] * len(logits))):
        if collapse(path) == label:
            total += np.prod([probabilities[t, p] for t, p in enumerate(path)])
    return -float(np.log(total))


def test_warpctc_adds_up_all_paths() -> None:
    logits = rows(7, 3)
    label = np.array([[1], [2], [1], [1]], "int32")
    costs = [ctc_cost(logits[:3], [1, 2]), ctc_cost(logits[3:], [1, 1])]
    inputs = {"Logits": (logits, [[3, 4]]), "Label": (label, [[2, 2]])}
    check_op("warpctc", inputs, outputs={"Loss": np.array(costs)[:, None]})
    padded = np.zeros((4, 2, 3))
    padded[:3, 0], padded[:, 1] = logits[:3], logits[3:]
    check_op(
        "warpctc",
        {
            "Logits": padded,
            "Label": label.reshape(2, 2),
            "LogitsLength": np.array([3, 4]),
            "LabelLength": np.array([2, 2]),
        },
        outputs={"Loss": np.array(costs)[:, None]},
    )


def test_ctc_align_leaves_out_blanks_and_repetitions() -> None:
    x = np.array([[0], [1], [1], [0], [1], [2], [2], [0], [0]])
    inputs = {"Input": (x, [[5, 3, 1]])}
    check_op("ctc_align", inputs, outputs={"Output": np.array([[1], [1], [2]])})
    assert lod_of("ctc_align", inputs, {}, "Output") == [[0, 2, 3, 3]]
    padded = np.array([[0, 1, 1, 0, 1], [2, 2, 0, 7, 7]])
    check_op(
        "ctc_align",
        {"Input": padded, "InputLength": np.array([[5], [3]])},
        {"padding_value": -1},
        {
            "Output": np.array([[1, 1, -1, -1, -1], [2, -1, -1, -1, -1]]),
            "OutputLength": np.array([[2], [1]]),
        },
    )


def test_gather_tree_follows_parents() -> None:
    ids = np.array([[[2, 2]], [[6, 1]], [[3, 9]]])
    parents = np.array([[[0, 0]], [[1, 0]], [[1, 0]]])
    expected = np.array([[[2, 2]], [[1, 6]], [[3, 9]]])
    check_op("gather_tree", {"Ids": ids, "Parents": parents}, outputs={"Out": expected})
