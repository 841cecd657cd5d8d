"""Sequence ops: values against a loop over sequences in NumPy, gradients by differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from op_check import OpProgram, check_op

from fleetx import static
from fleetx.static import ExecutionError

RNG = np.random.default_rng(0)
LENGTHS = [2, 3, 1]


def rows(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape)


def split(x: np.ndarray, lengths: list[int]) -> list[np.ndarray]:
    return np.split(x, np.cumsum(lengths)[:-1])


def lod_of(type: str, inputs: dict[str, Any], attrs: dict[str, Any], slot: str = "Out") -> Any:
    """Return the offsets that an op gives its output."""
    program = OpProgram(type, inputs, attrs, {})
    executor = static.Executor(static.CPUPlace())
    (found,) = executor.run(
        program.main, feed=program.feeds, fetch_list=program.outputs[slot], return_numpy=False
    )
    return found.lod()


POOLS = {
    "SUM": lambda s: s.sum(0),
    "AVERAGE": lambda s: s.mean(0),
    "SQRT": lambda s: s.sum(0) / np.sqrt(len(s)),
    "MAX": lambda s: s.max(0),
    "LAST": lambda s: s[-1],
    "FIRST": lambda s: s[0],
}


@pytest.mark.parametrize("pooltype", POOLS)
@pytest.mark.parametrize("lengths", [LENGTHS, [3, 0, 3, 0], [0, 6]])
def test_sequence_pool(pooltype: str, lengths: list[int]) -> None:
    x = rows(6, 3)
    expected = [POOLS[pooltype](s) if len(s) else np.full(3, 7.0) for s in split(x, lengths)]
    check_op(
        "sequence_pool",
        {"X": (x, [lengths])},
        {"pooltype": pooltype, "pad_value": 7.0},
        {"Out": np.stack(expected)},
    )


def test_sequence_pool_max_index_is_the_first_largest_row() -> None:
    x = np.array([[1.0], [2.0], [2.0], [5.0], [3.0]])
    found = check_op(
        "sequence_pool",
        {"X": (x, [[3, 2]])},
        {"pooltype": "MAX"},
        counts={"MaxIndex": 1},
        grad_of=[],
    )
    assert found["MaxIndex"][0].tolist() == [[1], [3]]


def test_sequence_pool_of_two_levels_keeps_the_upper_one() -> None:
    inputs = {"X": (rows(6, 2), [[2, 1], [1, 2, 3]])}
    assert lod_of("sequence_pool", inputs, {"pooltype": "SUM"}) == [[0, 2, 3]]


def test_an_input_without_lengths_is_refused() -> None:
    with pytest.raises(ExecutionError, match="needs a variable-length input for 'X'"):
        check_op("sequence_pool", {"X": rows(6, 2)}, {"pooltype": "SUM"})


def test_sequence_softmax() -> None:
    x = rows(6, 1)
    expected = np.concatenate([np.exp(s) / np.exp(s).sum() for s in split(x, LENGTHS)])
    check_op("sequence_softmax", {"X": (x, [LENGTHS])}, outputs={"Out": expected})


@pytest.mark.parametrize(("start", "size"), [(-1, 3), (0, 2), (-2, 2), (1, 1)])
def test_sequence_conv(start: int, size: int) -> None:
    x, weight = rows(6, 2), rows(size * 2, 4)
    windows = []
    for s in split(x, LENGTHS):
        for t in range(len(s)):
            places = range(t + start, t + start + size)
            windows.append(
                np.concatenate([s[p] if 0 <= p < len(s) else np.zeros(2) for p in places])
            )
    check_op(
        "sequence_conv",
        {"X": (x, [LENGTHS]), "Filter": weight},
        {"contextStart": start, "contextLength": size},
        {"Out": np.stack(windows) @ weight},
    )


def test_sequence_reverse() -> None:
    x = rows(6, 2)
    expected = np.concatenate([s[::-1] for s in split(x, LENGTHS)])
    check_op("sequence_reverse", {"X": (x, [LENGTHS])}, outputs={"Y": expected})


def test_sequence_slice() -> None:
    x = rows(6, 2)
    inputs = {
        "X": (x, [LENGTHS]),
        "Offset": np.array([[0], [1], [0]]),
        "Length": np.array([[1], [2], [0]]),
    }
    check_op("sequence_slice", inputs, outputs={"Out": x[[0, 3, 4]]})
    assert lod_of("sequence_slice", inputs, {}) == [[0, 1, 3, 3]]


def test_sequence_slice_beyond_the_end_is_refused() -> None:
    inputs = {
        "X": (rows(6, 2), [LENGTHS]),
        "Offset": np.array([[0], [2], [0]]),
        "Length": np.array([[1], [2], [1]]),
    }
    with pytest.raises(ExecutionError, match="rows 2 to 4 of sequence 1, which has 3 rows"):
        check_op("sequence_slice", inputs)


def test_sequence_expand_repeats_rows_or_sequences() -> None:
    x = rows(3, 2)
    y = (rows(6, 1), [LENGTHS])
    check_op("sequence_expand", {"X": x, "Y": y}, outputs={"Out": x[[0, 0, 1, 1, 1, 2]]})
    inputs = {"X": (x, [[1, 2]]), "Y": (rows(6, 1), [[2, 1], LENGTHS])}
    check_op("sequence_expand", inputs, {"ref_level": 0}, {"Out": x[[0, 0, 1, 2]]})
    assert lod_of("sequence_expand", inputs, {"ref_level": 0}) == [[0, 1, 2, 4]]


def test_sequence_expand_as() -> None:
    x = rows(3, 2)
    inputs = {"X": x, "Y": (rows(6, 1), [LENGTHS])}
    check_op("sequence_expand_as", inputs, outputs={"Out": np.repeat(x, LENGTHS, 0)})
    assert lod_of("sequence_expand_as", inputs, {}) == [[0, 2, 5, 6]]


def test_sequence_concat() -> None:
    x, y = rows(6, 2), rows(4, 2)
    parts = zip(split(x, LENGTHS), split(y, [1, 0, 3]), strict=True)
    inputs = {"X": [(x, [LENGTHS]), (y, [[1, 0, 3]])]}
    expected = np.concatenate([np.concatenate(pair) for pair in parts])
    check_op("sequence_concat", inputs, outputs={"Out": expected})
    assert lod_of("sequence_concat", inputs, {}) == [[0, 3, 6, 10]]


@pytest.mark.parametrize("pad", [np.array([9.0]), np.array([9.0, 8.0])])
@pytest.mark.parametrize("width", [-1, 4])
def test_sequence_pad_and_unpad(pad: np.ndarray, width: int) -> None:
    x = rows(6, 2)
    expected = np.broadcast_to(pad, (3, 3 if width < 0 else width, 2)).copy()
    for row, s in zip(expected, split(x, LENGTHS), strict=True):
        row[: len(s)] = s
    check_op(
        "sequence_pad",
        {"X": (x, [LENGTHS]), "PadValue": pad},
        {"padded_length": width},
        {"Out": expected, "Length": np.array(LENGTHS)},
    )
    inputs = {"X": expected, "Length": np.array(LENGTHS)}
    check_op("sequence_unpad", inputs, outputs={"Out": x})
    assert lod_of("sequence_unpad", inputs, {}) == [[0, 2, 5, 6]]


def test_sequence_pad_too_short_is_refused() -> None:
    inputs = {"X": (rows(6, 2), [LENGTHS]), "PadValue": np.zeros(1)}
    with pytest.raises(ExecutionError, match="maxlen of sequence_pad is 2"):
        check_op("sequence_pad", inputs, {"padded_length": 2})


def test_sequence_reshape() -> None:
    x = rows(6, 2)
    inputs = {"X": (x, [[2, 4]])}
    check_op("sequence_reshape", inputs, {"new_dim": 4}, {"Out": x.reshape(3, 4)})
    assert lod_of("sequence_reshape", inputs, {"new_dim": 4}) == [[0, 1, 3]]
    with pytest.raises(ExecutionError, match="cannot cut sequences of width 2 into rows of 4"):
        check_op("sequence_reshape", {"X": (x, [[1, 5]])}, {"new_dim": 4})


def test_sequence_scatter_adds_up_repeated_places() -> None:
    x, updates = rows(2, 4), rows(5, 1)
    ids = np.array([[0], [2], [1], [1], [3]])
    expected = x.copy()
    for i, (row, column) in enumerate([(0, 0), (0, 2), (1, 1), (1, 1), (1, 3)]):
        expected[row, column] += updates[i, 0]
    check_op(
        "sequence_scatter",
        {"X": x, "Ids": (ids, [[2, 3]]), "Updates": (updates, [[2, 3]])},
        outputs={"Out": expected},
    )


def test_sequence_enumerate_and_erase() -> None:
    x = (np.array([[1], [2], [3], [2], [5]]), [[2, 3]])
    check_op(
        "sequence_enumerate",
        {"X": x},
        {"win_size": 2, "pad_value": 7},
        {"Out": np.array([[1, 2], [2, 7], [3, 2], [2, 5], [5, 7]])},
    )
    attrs = {"tokens": [2, 5]}
    check_op("sequence_erase", {"X": x}, attrs, {"Out": np.array([[1], [3]])})
    assert lod_of("sequence_erase", {"X": x}, attrs) == [[0, 1, 2]]


@pytest.mark.parametrize("maxlen", [-1, 5])
def test_sequence_mask(maxlen: int) -> None:
    lengths = np.array([1, 3, 0])
    expected = np.arange(3 if maxlen < 0 else maxlen) < lengths[:, None]
    attrs = {"maxlen": maxlen, "out_dtype": int(static.VarType.FP32)}
    check_op("sequence_mask", {"X": lengths}, attrs, {"Y": expected.astype("float32")})


def test_lod_reset() -> None:
    x = rows(6, 2)
    check_op("lod_reset", {"X": (x, [LENGTHS])}, {"target_lod": [0, 4, 6]}, {"Out": x})
    assert lod_of("lod_reset", {"X": x}, {"target_lod": [0, 4, 6]}) == [[0, 4, 6]]
    inputs = {"X": x, "Y": np.array([0, 1, 6], "int32")}
    assert lod_of("lod_reset", inputs, {}) == [[0, 1, 6]]
    inputs = {"X": x, "Y": (rows(6, 1), [LENGTHS])}
    assert lod_of("lod_reset", inputs, {}) == [[0, 2, 5, 6]]
    attrs = {"target_lod": [0, 1, 2, 3, 4, 5, 6], "append": True}
    assert lod_of("lod_reset", {"X": (x, [LENGTHS])}, attrs) == [
        [0, 2, 5, 6],
        [0, 1, 2, 3, 4, 5, 6],
    ]
    with pytest.raises(ExecutionError, match="do not end at the 6 rows of X"):
        check_op("lod_reset", {"X": x}, {"target_lod": [0, 4]})


def test_im2sequence() -> None:
    x = rows(2, 2, 3, 4)
    attrs = {"kernels": [2, 3], "strides": [1, 2], "paddings": [1, 0, 0, 1]}
    padded = np.pad(x, ((0, 0), (0, 0), (1, 0), (0, 1)))
    patches = [
        padded[n, :, i : i + 2, j : j + 3].reshape(-1)
        for n in range(2)
        for i in range(3)
        for j in (0, 2)
    ]
    check_op("im2sequence", {"X": x}, attrs, {"Out": np.stack(patches)})
    assert lod_of("im2sequence", {"X": x}, attrs) == [[0, 6, 12]]


def test_fused_embedding_seq_pool_skips_the_padding_id() -> None:
    weight = rows(5, 3)
    ids = np.array([[0], [2], [2], [4], [1], [3]])
    table = weight.copy()
    table[2] = 0
    check_op(
        "fused_embedding_seq_pool",
        {"W": weight, "Ids": (ids, [LENGTHS])},
        {"padding_idx": 2},
        {"Out": np.stack([s.sum(0) for s in split(table[ids[:, 0]], LENGTHS)])},
    )


# -- recurrent ---------------------------------------------------------------------------------
def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("peepholes", [True, False])
@pytest.mark.parametrize("reverse", [True, False])
def test_lstm(peepholes: bool, reverse: bool) -> None:
    size = 2
    x, weight, bias = rows(6, 8), rows(2, 8), rows(1, 14 if peepholes else 8)
    h0, c0 = rows(3, 2), rows(3, 2)
    peep = np.split(bias[0, 8:], 3) if peepholes else [np.zeros(size)] * 3
    hidden, cell = [], []
    for n, s in enumerate(split(x, LENGTHS)):
        h, c, hs, cs = h0[n], c0[n], [], []
        for row in s[::-1] if reverse else s:
            g, i, f, o = np.split(row + bias[0, :8] + h @ weight, 4)
            c = np.tanh(g) * sigmoid(i + peep[0] * c) + c * sigmoid(f + peep[1] * c)
            h = sigmoid(o + peep[2] * c) * np.tanh(c)
            hs.append(h)
            cs.append(c)
        hidden += hs[::-1] if reverse else hs
        cell += cs[::-1] if reverse else cs
    check_op(
        "lstm",
        {"Input": (x, [LENGTHS]), "H0": h0, "C0": c0, "Weight": weight, "Bias": bias},
        {"use_peepholes": peepholes, "is_reverse": reverse},
        {"Hidden": np.stack(hidden), "Cell": np.stack(cell)},
    )


def test_lstmp() -> None:
    x, weight, projection, bias = rows(6, 8), rows(3, 8), rows(2, 3), rows(1, 14)
    peep = np.split(bias[0, 8:], 3)
    states = []
    for s in split(x, LENGTHS):
        r, c = np.zeros(3), np.zeros(2)
        for row in s:
            g, i, f, o = np.split(row + bias[0, :8] + r @ weight, 4)
            c = np.tanh(g) * sigmoid(i + peep[0] * c) + c * sigmoid(f + peep[1] * c)
            c = np.clip(c, -0.25, 0.25)
            r = np.tanh(sigmoid(o + peep[2] * c) * np.tanh(c) @ projection)
            r = np.clip(r, -0.06, 0.06)
            states.append(r)
    check_op(
        "lstmp",
        {"Input": (x, [LENGTHS]), "Weight": weight, "ProjWeight": projection, "Bias": bias},
        {"cell_clip": 0.25, "proj_clip": 0.06},
        {"Projection": np.stack(states)},
    )


def gru_step(
    x: np.ndarray, h: np.ndarray, weight: np.ndarray, origin: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    size = h.shape[-1]
    flat = weight.reshape(-1)
    gates, candidate = flat[: 2 * size**2].reshape(size, -1), flat[2 * size**2 :].reshape(size, -1)
    ur = sigmoid(x[..., : 2 * size] + h @ gates)
    u, r = np.split(ur, 2, -1)
    c = np.tanh(x[..., 2 * size :] + (r * h) @ candidate)
    new = u * h + (1 - u) * c if origin else (1 - u) * h + u * c
    return np.concatenate([ur, c], -1), r * h, new


@pytest.mark.parametrize("origin", [True, False])
@pytest.mark.parametrize("reverse", [True, False])
def test_gru(origin: bool, reverse: bool) -> None:
    x, weight, bias, h0 = rows(6, 6), rows(2, 6), rows(1, 6), rows(3, 2)
    hidden = []
    for n, s in enumerate(split(x, LENGTHS)):
        h, hs = h0[n], []
        for row in s[::-1] if reverse else s:
            _, _, h = gru_step(row + bias[0], h, weight, origin)
            hs.append(h)
        hidden += hs[::-1] if reverse else hs
    check_op(
        "gru",
        {"Input": (x, [LENGTHS]), "H0": h0, "Weight": weight, "Bias": bias},
        {"is_reverse": reverse, "origin_mode": origin},
        {"Hidden": np.stack(hidden)},
    )


def test_single_steps() -> None:
    x, h, weight, bias = rows(3, 6), rows(3, 2), rows(2, 6), rows(1, 6)
    gate, reset, new = gru_step(x + bias, h, weight, False)
    check_op(
        "gru_unit",
        {"Input": x, "HiddenPrev": h, "Weight": weight, "Bias": bias},
        outputs={"Gate": gate, "ResetHiddenPrev": reset, "Hidden": new},
    )
    x, cell = rows(3, 8), rows(3, 2)
    i, f, o, j = np.split(x, 4, 1)
    c = sigmoid(f + 0.5) * cell + sigmoid(i) * np.tanh(j)
    check_op(
        "lstm_unit",
        {"X": x, "C_prev": cell},
        {"forget_bias": 0.5},
        {"C": c, "H": sigmoid(o) * np.tanh(c)},
    )


# -- tagging -----------------------------------------------------------------------------------
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
