"""Programs through the methods of Paddle's descriptions."""

import pytest

import fleetx.static as static
from fleetx.checkpoint.program_desc import AttrType
from fleetx.static import VarType, layers
from fleetx.static.protobuf.desc_view import ProgramDescView


def test_a_program_is_built_step_by_step():
    desc = ProgramDescView()
    block = desc.block(0)
    for name, shape in ((b"x", [10, 100]), ("y", [100, 3])):
        var = block.var(name)
        var.set_type(VarType.LOD_TENSOR)
        var.set_dtype(VarType.FP32)
        var.set_shape(shape)
    out = block.var("out")
    op = block.append_op()
    op.set_type("mul")
    op.set_input("X", ["x"])
    op.set_input("Y", ["y"])
    op.set_output("Out", ["out"])
    op.check_attrs()
    assert op.attr("x_num_col_dims") == 1
    op.infer_var_type(block)
    op.infer_shape(block)
    assert out.shape() == [10, 3]
    assert out.dtype() == VarType.FP32
    assert op.input_names() == ["X", "Y"]
    assert op.inputs() == {"X": ["x"], "Y": ["y"]}
    assert op.output_arg_names() == ["out"]
    assert block.op(0) == op
    assert {block.var("x"), block.var("y"), out} == set(block.all_vars())
    again = ProgramDescView()
    again.parse_from_string(desc.serialize_to_string())
    assert again.block(0).op(0).type() == "mul"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1, AttrType.INT),
        (-1.5, AttrType.FLOAT),
        ("abc", AttrType.STRING),
        (True, AttrType.BOOLEAN),
        ([1, 2], AttrType.INTS),
        ([1.5], AttrType.FLOATS),
        (["a"], AttrType.STRINGS),
        ([True, False], AttrType.BOOLEANS),
    ],
)
def test_attributes_of_any_op(value, kind):
    op = ProgramDescView().block(0).append_op()
    op.set_type("test")
    op.set_attr("given", value)
    assert op.attr("given") == value
    assert op.attr_type("given") == kind
    assert op.attr_names() == ["given"]
    op.remove_attr("given")
    assert not op.has_attr("given")


def test_blocks():
    desc = ProgramDescView()
    root = desc.block(0)
    inner = desc.append_block(root)
    innermost = desc.append_block(inner)
    assert (root.id, inner.id, innermost.parent) == (0, 1, 1)
    assert desc.num_blocks() == 3
    op = root.append_op()
    op.set_block_attr("sub_block", inner)
    assert op._block_attr_id("sub_block") == 1
    root.var("a")
    assert inner.find_var("a") is None
    assert inner.find_var_recursive("a") == root.find_var("a")
    first, last = root._prepend_op(), root.append_op()
    assert [root.op(i) for i in range(root.op_size())] == [first, op, last]
    root._remove_op(1, 2)
    assert [root.op(i) for i in range(root.op_size())] == [first, last]


def test_readers_have_several_shapes():
    var = ProgramDescView().block(0).var("reader")
    var.set_type(VarType.READER)
    var.set_shapes([[2, 3], [4]])
    var.set_dtypes([VarType.INT32, VarType.FP32])
    var.set_lod_levels([0, 1])
    assert var.shapes() == [[2, 3], [4]]
    assert var.dtypes() == [VarType.INT32, VarType.FP32]
    assert var.lod_levels() == [0, 1]


def test_changes_reach_the_program():
    x = layers.data("x", [4])
    out = layers.fc(x, 2)
    program = static.default_main_program()
    program.desc.block(0).var("x").set_stop_gradient(False)
    assert x.stop_gradient is False
    op = program.global_block().ops[0]
    op.desc._rename_input("x", "z")
    x.desc.set_name("z")
    assert program.global_block().var("z") is x
    assert op.input("X") == ["z"]
    copy = program.global_block().desc.append_op()
    copy.copy_from(op.desc)
    assert copy.type() == op.type
    assert out.desc.persistable() is False
    assert len(out.desc.serialize_to_string()) > 0
    assert len(op.desc.serialize_to_string()) > 0
