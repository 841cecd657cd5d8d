"""Sequence ops: values against a loop over sequences in NumPy, gradients by differences."""

from __future__ import annotations

import numpy as np
import pytest
from op_check import check_op
from sequence_cases import LENGTHS, lod_of, rows, split

from fleetx import static
from fleetx.static import ExecutionError

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
