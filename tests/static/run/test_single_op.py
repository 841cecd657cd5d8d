"""Ops outside of programs: their definitions, and running one on a scope."""

import numpy as np
import pytest
import torch

from fleetx import static
from fleetx.static.layers.places import get_places
from fleetx.static.protobuf.op_proto import all_op_protos, op_proto
from fleetx.static.run.single_op import SingleOp


def test_definitions_list_slots_and_attributes():
    proto = op_proto("concat")
    assert [(s.name, s.duplicable, s.dispensable) for s in proto.inputs] == [
        ("X", True, False),
        ("AxisTensor", False, True),
    ]
    assert "axis" in [a.name for a in proto.attrs]
    assert op_proto("reshape2").outputs[1].intermediate
    assert {"mul", "softmax"} <= {p.type for p in all_op_protos()}
    with pytest.raises(ValueError, match="concatenate_everything"):
        op_proto("concatenate_everything")


def test_an_op_runs_on_a_scope():
    scope = static.Scope()
    scope.var("x").get_tensor().set(np.array([[1.0, -2.0]], "float32"), static.CPUPlace())
    op = SingleOp("scale", X="x", Out="y", scale=3.0)
    op.run(scope, static.CPUPlace())
    np.testing.assert_allclose(np.asarray(scope.find_var("y").get_tensor()), [[3.0, -6.0]])
    assert (op.type(), op.input("X"), op.output_vars()) == ("scale", ["x"], ["y"])
    assert op.inputs() == {"X": ["x"]}
    assert op.outputs() == {"Out": ["y"]}
    assert op.no_intermediate_outputs() == ["y"]


def test_an_op_reads_sequences_of_a_scope():
    scope = static.Scope()
    tensor = scope.var("x").get_tensor()
    tensor.set(np.arange(6, dtype="float32").reshape(3, 2), static.CPUPlace())
    tensor.set_recursive_sequence_lengths([[1, 2]])
    SingleOp("sequence_pool", X="x", Out="y", MaxIndex="i", pooltype="SUM").run(
        scope, static.CPUPlace()
    )
    np.testing.assert_allclose(np.asarray(scope.find_var("y").get_tensor()), [[0, 1], [6, 8]])


def test_unknown_arguments_are_refused_by_name():
    with pytest.raises(ValueError, match="'Z'"):
        SingleOp("scale", X="x", Out="y", Z="z")


def test_places_are_listed_in_a_program():
    with static.program_guard(static.Program(), static.Program()):
        out = get_places(device_count=2, device_type="CPU")
        (found,) = static.Executor().run(fetch_list=[out], return_numpy=False)
    assert [type(p) for p in found] == [static.CPUPlace] * 2


def test_an_op_runs_again_on_changed_values_and_shapes():
    scope, place = static.Scope(), static.CPUPlace()
    op = SingleOp("scale", X="x", Out="y", scale=3.0)
    for value in ([1.0], [2.0], [[1.0, 2.0]]):
        scope.var("x").get_tensor().set(np.array(value, "float32"), place)
        op.run(scope, place)
        np.testing.assert_array_equal(
            np.asarray(scope.find_var("y").get_tensor()), 3 * np.array(value)
        )


def test_an_op_that_changes_a_variable_leaves_the_input_of_another_name():
    scope, place = static.Scope(), static.CPUPlace()
    for name, value in (("p", 1.0), ("g", 2.0), ("rate", 0.5)):
        scope.var(name).get_tensor().set(np.array([value], "float32"), place)
    SingleOp("sgd", Param="p", Grad="g", LearningRate="rate", ParamOut="new").run(scope, place)
    assert float(scope.find_var("new").value) == 0.0
    assert float(scope.find_var("p").value) == 1.0
    SingleOp("sgd", Param="p", Grad="g", LearningRate="rate", ParamOut="p").run(scope, place)
    assert float(scope.find_var("p").value) == 0.0


def test_rows_are_divided_among_servers():
    scope, place = static.Scope(), static.CPUPlace()
    rows = scope.var("x").get_selected_rows()
    rows.set_rows([0, 5, 7, 4, 20])
    rows.set_height(23)
    rows.get_tensor().set(np.arange(10, dtype="float32").reshape(5, 2), place)
    names = [f"part{i}" for i in range(3)]
    SingleOp("split_selected_rows", X="x", Out=names, height_sections=[5, 5, 13]).run(scope, place)
    parts = [scope.find_var(name).get_selected_rows() for name in names]
    assert [part.rows() for part in parts] == [[0, 4], [0, 2], [10]]
    assert [part.height() for part in parts] == [5, 5, 13]
    assert [part.numel() for part in parts] == [4, 4, 2]
    assert np.array(parts[1].get_tensor()).tolist() == [[2, 3], [4, 5]]
    scope.var("w").get_tensor().set(np.arange(6, dtype="float32").reshape(3, 2), place)
    SingleOp("split_byref", X="w", Out=["a", "b"], sections=[2, 1]).run(scope, place)
    assert scope.find_var("b").value.tolist() == [[4, 5]]
    SingleOp("fake_init", Out="there", shape=[4, 7]).run(scope, place)
    assert scope.find_var("there").value.shape == (4, 7)


def test_an_op_that_fails_is_named():
    scope, place = static.Scope(), static.CPUPlace()
    scope.var("w").get_tensor().set(np.zeros((3, 2), "float32"), place)
    scope.var("ids").get_tensor().set(np.array([[7]], "int64"), place)
    op = SingleOp("lookup_table", W="w", Ids="ids", Out="y")
    with pytest.raises(static.ExecutionError, match="holds 7, which is outside the table 'w'"):
        op.run(scope, place)


@pytest.mark.parametrize(
    "attrs",
    [{}, {"strides": [2, 1], "paddings": [1, 2]}, {"groups": 2}, {"dilations": [2, 2]}],
)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_convolutions_alone_compute_what_torch_does(attrs, size):
    """A tiny one that runs by itself is not computed by oneDNN, as torch's is."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 4, 6, 5)).astype("float32")
    w = rng.standard_normal((6, 4 // attrs.get("groups", 1), size, size)).astype("float32")
    scope = static.Scope()
    scope.var("x").get_tensor().set(x, static.CPUPlace())
    scope.var("w").get_tensor().set(w, static.CPUPlace())
    SingleOp("conv2d", Input="x", Filter="w", Output="y", **attrs).run(scope, static.CPUPlace())
    names = {"strides": "stride", "paddings": "padding", "dilations": "dilation"}
    settings = {names.get(name, name): value for name, value in attrs.items()}
    expected = torch.conv2d(torch.from_numpy(x), torch.from_numpy(w), **settings)
    found = np.asarray(scope.find_var("y").get_tensor())
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-5)


def test_elements_are_read_and_changed_in_place():
    scope = static.Scope()
    tensor = scope.var("x").get_tensor()
    for dtype in ("float32", "float64", "float16"):
        tensor.set(np.arange(6).reshape(2, 3).astype(dtype), static.CPUPlace())
        tensor._set_float_element(4, 0.5)
        assert [tensor._get_float_element(i) for i in range(6)] == [0, 1, 2, 3, 0.5, 5]
        assert np.asarray(tensor)[1, 1] == 0.5
    scope.var("x").value = torch.arange(3).to(torch.bfloat16)
    tensor._set_float_element(1, 2.5)
    assert [tensor._get_float_element(i) for i in range(3)] == [0, 2.5, 2]
