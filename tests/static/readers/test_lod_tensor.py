"""LoDTensor: data, sequences, indexing and errors, as Paddle 1.8.5 behaves."""

import numpy as np
import pytest
import torch

from fleetx.static.errors import EnforceNotMet
from fleetx.static.graph.dtypes import VarType
from fleetx.static.readers.lod_tensor import (
    LoDTensor,
    LoDTensorArray,
    concat_lod_tensors,
    create_lod_tensor,
    create_random_int_lodtensor,
)
from fleetx.static.run.place import CPUPlace

ROWS = np.arange(10, dtype="float32").reshape(5, 2)


def rows():
    tensor = LoDTensor()
    tensor.set(ROWS, CPUPlace())
    return tensor


def test_empty_tensor():
    tensor = LoDTensor()
    assert tensor.shape() == [0]
    assert tensor.lod() == tensor.recursive_sequence_lengths() == []
    assert tensor.has_valid_recursive_sequence_lengths()
    assert not tensor._is_initialized()
    assert np.array(tensor).shape == (0,)
    with pytest.raises(EnforceNotMet, match="set"):
        tensor._dtype()


def test_offsets_and_lengths_are_two_views_of_one_thing():
    tensor = rows()
    tensor.set_recursive_sequence_lengths([[1, 1], [2, 3]])
    assert tensor.lod() == [[0, 1, 2], [0, 2, 5]]
    tensor.set_lod([[0, 2, 5]])
    assert tensor.recursive_sequence_lengths() == [[2, 3]]
    assert tensor._dtype() == VarType.FP32
    assert tensor._place() == CPUPlace()


@pytest.mark.parametrize(
    "lod", [[[0, 2, 4]], [[0, 3], [0, 2, 5]], [[0]], [[]], [[0, 3, 2, 5]], [[1, 5]]]
)
def test_an_invalid_lod_is_refused_and_changes_nothing(lod):
    tensor = rows()
    tensor.set_lod([[0, 5]])
    with pytest.raises(EnforceNotMet, match="invalid"):
        tensor.set_lod(lod)
    with pytest.raises(ValueError, match="invalid"):
        tensor.set_recursive_sequence_lengths([[2, 2]])
    assert tensor.lod() == [[0, 5]]


def test_lod_may_become_invalid_when_the_data_changes():
    tensor = rows()
    tensor.set_lod([[0, 5]])
    tensor.set(ROWS[:2], CPUPlace())
    assert not tensor.has_valid_recursive_sequence_lengths()


def test_set_copies_unless_told_otherwise():
    data = ROWS.copy()
    copied, shared = LoDTensor(), LoDTensor()
    copied.set(data, CPUPlace())
    shared.set(data, CPUPlace(), zero_copy=True)
    data[0, 0] = 99
    assert np.array(copied)[0, 0] == 0
    assert np.array(shared)[0, 0] == 99


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (slice(0, 2), [[0, 1], [2, 3]]),
        (1, [[2, 3]]),
        (-1, [[8, 9]]),
        ((0, 1), [[1]]),
        ((slice(None), 1), [[1], [3], [5], [7], [9]]),
        (slice(0, 4, 2), [[0, 1], [4, 5]]),
    ],
)
def test_indexing_keeps_the_rank(index, expected):
    assert np.array(rows()[index]).tolist() == expected


def test_wrong_index():
    for index in (5, (0, 0, 0), "a"):
        with pytest.raises(IndexError):
            rows()[index]


def test_set_takes_lists_and_torch_tensors_but_no_text():
    tensor = LoDTensor()
    tensor.set([1, 2, 3], CPUPlace())
    assert tensor._dtype() == VarType.INT64
    tensor.set(torch.ones(2, 3), CPUPlace())
    assert tensor.shape() == [2, 3]
    assert np.array(tensor, dtype="int64").tolist() == [[1, 1, 1]] * 2
    for data in (np.array(["a"]), np.zeros(3, "complex64")):
        with pytest.raises(EnforceNotMet, match=r"LoDTensor.set\(\) takes"):
            tensor.set(data, CPUPlace())


def test_text_shows_lod_shape_and_data():
    tensor = rows()
    tensor.set_lod([[0, 2, 5]])
    assert str(tensor) == (
        "\tlod: {{0, 2, 5}}\n\tdim: 5, 2\n\tlayout: NCHW\n\tdtype: float\n"
        "\tdata: [0 1 2 3 4 5 6 7 8 9]\n"
    )


def test_create_from_list_array_and_tensor():
    tensor = create_lod_tensor([[1, 2], [3]], [[2, 1]], CPUPlace())
    assert tensor.shape() == [3, 1]
    assert tensor.lod() == [[0, 2, 3]]
    assert create_lod_tensor([[1.5, 2], [3]], [[2, 1]], CPUPlace())._dtype() == VarType.FP64
    assert create_lod_tensor([[[1], [2]], [[3]]], [[2, 1]], CPUPlace()).shape() == [3, 1, 1]
    again = create_lod_tensor(tensor, [[1, 2]], CPUPlace())
    assert again.recursive_sequence_lengths() == [[1, 2]]
    assert create_lod_tensor(ROWS, [[1, 1], [2, 3]], CPUPlace()).lod() == [[0, 1, 2], [0, 2, 5]]


def test_create_refuses_what_does_not_fit():
    with pytest.raises(AssertionError, match="do not match"):
        create_lod_tensor([[1, 2], [3]], [[2, 2]], CPUPlace())
    with pytest.raises(EnforceNotMet, match="invalid"):
        create_lod_tensor(ROWS, [[2, 2]], CPUPlace())
    with pytest.raises(TypeError, match="tuple"):
        create_lod_tensor((1, 2), [[2]], CPUPlace())


def test_create_random_int():
    tensor = create_random_int_lodtensor([[20, 30]], [40], CPUPlace(), 0, 2)
    assert tensor.shape() == [50, 40]
    assert sorted(np.unique(np.array(tensor)).tolist()) == [0, 1, 2]
    with pytest.raises(AssertionError, match="base_shape"):
        create_random_int_lodtensor([[2]], 30, CPUPlace(), 0, 2)


def test_concat_joins_rows_and_sequences():
    first = create_lod_tensor(ROWS, [[1, 1], [2, 3]], CPUPlace())
    second = create_lod_tensor(ROWS[:3], [[2], [1, 2]], CPUPlace())
    joined = concat_lod_tensors([first, second])
    assert joined.shape() == [8, 2]
    assert joined.recursive_sequence_lengths() == [[1, 1, 2], [2, 3, 1, 2]]
    assert concat_lod_tensors([ROWS, rows()]).lod() == []
    with pytest.raises(ValueError, match="cannot be joined"):
        concat_lod_tensors([first, ROWS])


def test_array():
    array = LoDTensorArray()
    for i in range(3):
        array.append(create_lod_tensor(ROWS * i, [[5]], CPUPlace()))
    array[1] = array[0]
    assert len(array) == 3
    assert np.array(array[1]).max() == 0
    with pytest.raises(TypeError, match="int"):
        array.append(3)
    assert len(array._move_to_list()) == 3
    assert len(array) == 0
