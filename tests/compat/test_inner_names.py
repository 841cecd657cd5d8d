"""Inner names of Paddle that scripts and its own tests reach for."""

from __future__ import annotations

import numpy as np
import pytest

import paddle
import paddle.fluid as fluid
from paddle.fluid import core
from paddle.fluid.proto import framework_pb2


def test_programs_are_messages_of_framework_pb2() -> None:
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        fluid.layers.fc(fluid.data("x", [None, 3]), 2)
    message = framework_pb2.ProgramDesc.FromString(program.desc.serialize_to_string())
    assert [op.type for op in message.blocks[0].ops] == ["mul", "elementwise_add"]
    kinds = {v.name: v.type.type for v in message.blocks[0].vars}
    assert kinds["x"] == framework_pb2.VarType.LOD_TENSOR


def test_a_definition_is_an_op_proto() -> None:
    proto = framework_pb2.OpProto(type="scale", comment="none")
    proto.attrs.add(name="scale", type=framework_pb2.FLOAT, comment="")
    assert proto.IsInitialized()
    assert framework_pb2.OpProto.FromString(proto.SerializeToString()) == proto


def test_suffixes_and_lists_of_backward() -> None:
    backward = fluid.backward
    assert backward._append_grad_suffix_("x") == "x@GRAD"
    assert backward._strip_grad_suffix_("x@GRAD@RENAME@0") == "x"
    assert backward._as_list(None) == []
    assert backward._as_list(3) == [3]
    assert backward._as_list((1, 2)) == [1, 2]


def test_selected_rows_outside_a_scope() -> None:
    rows = core.SelectedRows([0, 4, 7], 10)
    rows.get_tensor().set(np.arange(6, dtype="float32").reshape(3, 2), core.CPUPlace())
    assert rows.rows() == [0, 4, 7]
    assert rows.height() == 10
    assert rows.get_tensor()._get_float_element(5) == 5.0


def test_tensors_pass_through_dlpack() -> None:
    tensor = fluid.create_lod_tensor(np.ones((2, 3), "float32"), [[2]], fluid.CPUPlace())
    again = core.from_dlpack(tensor._to_dlpack())
    assert isinstance(again, core.Tensor)
    np.testing.assert_array_equal(np.array(again), np.ones((2, 3)))


def test_a_place_becomes_another_one() -> None:
    place = core.Place()
    place.set_place(fluid.CPUPlace())
    assert place._type() == fluid.CPUPlace()._type()
    assert place.device().type == "cpu"


def test_an_array_of_a_scope_takes_tensors_with_offsets() -> None:
    scope = core.Scope()
    ids, scores = (scope.var(n).get_lod_tensor_array() for n in ("ids", "scores"))
    for array, kind in ((ids, "int64"), (scores, "float32")):
        tensor = fluid.LoDTensor()
        tensor.set(np.array([3, 1], kind), fluid.CPUPlace())
        tensor.set_lod([[0, 2], [0, 1, 2]])
        array.append(tensor)
    op = fluid.op.Operator(
        "beam_search_decode",
        Ids="ids",
        Scores="scores",
        SentenceIds="sentences",
        SentenceScores="totals",
        beam_size=2,
        end_id=1,
    )
    op.run(scope, fluid.CPUPlace())
    found = scope.find_var("sentences").get_tensor()
    assert found.lod() == [[0, 2], [0, 1, 2]]
    assert sorted(np.array(found).ravel().tolist()) == [1, 3]


def test_defaults_of_attributes() -> None:
    assert core.get_op_attrs_default_value(b"scale")["scale"] == 1.0


def test_the_message_of_no_exception() -> None:
    with pytest.raises(AssertionError):
        paddle.compat.get_exception_message(None)


def test_a_scope_is_removed_once() -> None:
    scope = core.Scope()
    scope.var("x").set_int(3)
    assert scope.find_var("x").is_int()
    scope._remove_from_pool()
    assert scope.find_var("x") is None
    with pytest.raises(RuntimeError, match="already been removed"):
        scope._remove_from_pool()


def test_first_states_of_a_cell_are_variables() -> None:
    inputs = fluid.data("inputs", [None, 3, 4])
    cell = fluid.layers.GRUCell(5)
    with pytest.raises(TypeError, match="initial_states"):
        fluid.layers.rnn(cell, inputs, initial_states=np.zeros((2, 5), "float32"))


def test_gaps_say_what_does_the_same() -> None:
    with pytest.raises(AttributeError, match="mixed_precision.decorate"):
        _ = fluid.contrib.mixed_precision.fp16_utils.cast_model_to_fp16
    with pytest.raises(AttributeError, match="Kunlun"):
        _ = fluid.XPUPlace
