"""Names by which tools read definitions of ops and run one op on a scope."""

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import core
from paddle.fluid.framework import OpProtoHolder, get_all_op_protos
from paddle.fluid.op import Operator


def test_definitions_by_type():
    proto = OpProtoHolder.instance().get_op_proto("mul")
    assert [s.name for s in proto.inputs] == Operator.get_op_input_names("mul") == ["X", "Y"]
    assert Operator.get_op_inputs("concat")[0] == ("X", True)
    assert Operator.get_op_outputs("mul") == [("Out", False)]
    assert Operator.get_op_output_names("mul") == ["Out"]
    assert "x_num_col_dims" in Operator.get_op_attr_names("mul")
    assert Operator.get_op_info("mul") == proto
    assert "mul" in Operator.types()
    assert len(get_all_op_protos()) == len(OpProtoHolder.instance().op_proto_map)
    assert "mul" in core._get_all_register_op_kernels()


def test_one_op_on_a_scope():
    scope = core.Scope()
    scope.var("x").get_tensor().set(np.ones((2, 3), "float32"), fluid.CPUPlace())
    Operator("scale", X="x", Out="y", scale=2.0).run(scope, fluid.CPUPlace())
    assert np.array(scope.find_var("y").get_tensor()).tolist() == [[2.0] * 3] * 2
    assert Operator(type="mean", X="x", Out="y").type() == "mean"
    with pytest.raises(ValueError, match="keyword arguments only"):
        Operator("scale", "x")
