"""Tensors of a scope: the same interface as LoDTensors, values that runs see."""

import numpy as np
import pytest
import torch

from fleetx.static.graph.dtypes import VarType
from fleetx.static.readers.lod_tensor import LoDTensor, create_lod_tensor
from fleetx.static.run.place import CPUPlace
from fleetx.static.run.scope import Scope
from fleetx.static.shapes.lod_values import (
    as_lod_tensor,
    as_numpy,
    fetch_var,
    get_fetch_variable,
    set_feed_variable,
)


def test_a_scope_tensor_is_a_lod_tensor_over_the_variable():
    variable = Scope().var("x")
    tensor = variable.get_tensor()
    assert isinstance(tensor, LoDTensor)
    assert not tensor._is_initialized()
    with pytest.raises(RuntimeError, match="'x' holds no tensor yet"):
        tensor.numpy()

    source = np.arange(6, dtype="float32").reshape(3, 2)
    tensor.set(source, CPUPlace())
    source[:] = 0  # what was set is a copy
    assert isinstance(variable.value, torch.Tensor)
    np.testing.assert_array_equal(np.array(tensor)[2], [4, 5])
    tensor.set_recursive_sequence_lengths([[1, 2]])
    assert variable.lod == [[0, 1, 3]]
    assert variable.get_tensor().recursive_sequence_lengths() == [[1, 2]]
    assert "dim: 3, 2" in str(tensor)
    copy = np.asarray(tensor)
    copy[:] = 7  # reading never gives the variable's own memory
    assert variable.value[0, 0] == 0


@pytest.mark.parametrize("make", [LoDTensor, lambda: Scope().var("x").get_tensor()])
def test_room_is_made_for_declared_dimensions(make):
    tensor = make()
    tensor._set_dims([2, 3])
    tensor._alloc_int(CPUPlace())
    assert (np.array(tensor).dtype, tensor.shape()) == (np.int32, [2, 3])
    tensor._alloc_float(CPUPlace())
    tensor._set_float_element(4, 2.5)
    assert tensor._get_float_element(4) == np.array(tensor)[1, 1] == 2.5
    assert isinstance(tensor._mutable_data(CPUPlace(), VarType.FP32), int)
    assert np.array(tensor)[1, 1] == 2.5


def test_bfloat16_bits_become_bfloat16():
    variable = Scope().var("x")
    variable.get_tensor().set(np.array([0x3F80, 0x4000], dtype="uint16"))
    assert variable.value.dtype == torch.bfloat16
    assert variable.value.tolist() == [1.0, 2.0]
    assert variable.get_tensor().numpy().tolist() == [0x3F80, 0x4000]


def test_lengths_before_data():
    tensor = LoDTensor([[2, 2]])
    tensor.set(np.ones((4, 3), "float32"))
    assert tensor.lod() == [[0, 2, 4]]


def test_arrays_of_tensors():
    tensor = as_lod_tensor(np.ones(3, "float32"), CPUPlace())
    assert as_numpy([tensor])[0].tolist() == [1, 1, 1]
    assert as_numpy(LoDTensor()) is None
    assert as_lod_tensor(3, CPUPlace(), VarType.FP64).shape() == [1]
    with pytest.raises(AssertionError, match="needs a dtype"):
        as_lod_tensor(3, CPUPlace())
    with pytest.raises(RuntimeError, match="create_lod_tensor"):
        as_lod_tensor([[1], [1, 2]], CPUPlace())
    tensor.set_recursive_sequence_lengths([[1, 2]])
    with pytest.raises(RuntimeError, match="return_numpy=False"):
        as_numpy(tensor)


def test_values_by_name():
    scope = Scope()
    scope.var("w").get_tensor().set(np.array([1, 2]))
    assert fetch_var("w", scope).tolist() == [1, 2]
    assert fetch_var("w", scope, return_numpy=False).shape() == [2]
    with pytest.raises(AssertionError, match="Cannot find 'v'"):
        fetch_var("v", scope)

    tensor = as_lod_tensor(np.ones(3, "float32"))
    set_feed_variable(scope, tensor, "feed", 1)
    assert get_fetch_variable(scope, "feed", 1) is tensor
    with pytest.raises(IndexError, match="'feed' holds 2 values"):
        get_fetch_variable(scope, "feed", 2)


def test_selected_rows_of_a_scope() -> None:
    variable = Scope().var("rows")
    handle = variable.get_selected_rows()
    handle.set_height(6)
    handle.set_rows([4, 1, 4])
    handle.get_tensor().set(np.ones((3, 2), "float32"), CPUPlace())
    again = variable.get_selected_rows()
    assert (again.rows(), again.height()) == ([4, 1, 4], 6)
    assert again.get_tensor().numpy().shape == (3, 2)
    whole = variable.value.to_dense()
    assert whole.shape == (6, 2)
    assert whole[4].tolist() == [2.0, 2.0]
    variable.value = whole.to_sparse(1)  # what an op writes
    assert variable.get_selected_rows().rows() == [1, 4]
    variable.value = whole
    with pytest.raises(TypeError, match="'rows' holds no selected rows"):
        variable.get_selected_rows()


def test_elements_of_an_array_are_replaced():
    array = Scope().var("array").get_lod_tensor_array()
    array.append(create_lod_tensor(np.zeros((2, 1), "float32"), [[1, 1]], CPUPlace()))
    array[0] = create_lod_tensor(np.ones((3, 1), "float32"), [[1, 2]], CPUPlace())
    assert array[0].recursive_sequence_lengths() == [[1, 2]]
    assert np.array(array[0]).sum() == 3
