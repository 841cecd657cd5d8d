"""Ops outside of programs: their definitions, and running one on a scope."""

import numpy as np
import pytest

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
