from pathlib import Path

import numpy as np
import pytest
from tiny_network import Network

from fleetx.checkpoint import FormatError
from fleetx.checkpoint.program_desc import AttrType, VarKind, message
from fleetx.static import Parameter, Program, append_backward
from fleetx.static.protobuf.attr_codec import decode_attr, encode_attr
from fleetx.static.protobuf.serialize import program_from_bytes, program_to_bytes, program_to_desc

GOLDEN = Path(__file__).parent / "golden"


def again(program):
    return program_from_bytes(program_to_bytes(program), source="model")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("INT", -3),
        ("LONG", 2**40),
        ("FLOAT", 0.9),
        ("FLOAT64", 0.1),
        ("STRING", "NCHW"),
        ("BOOLEAN", True),
        ("INTS", [1, -1]),
        ("INTS", []),
        ("LONGS", [2**40]),
        ("FLOATS", [0.1, 1e-5]),
        ("FLOAT64S", [0.1]),
        ("STRINGS", ["a", "b"]),
        ("STRINGS", []),
        ("BOOLEANS", [True, False]),
        ("VAR", "x"),
        ("VARS", ["x", "y"]),
        ("SCALAR", 2.5),
        ("SCALARS", [1, 2.5, True, 1j]),
    ],
)
def test_attribute_round_trip(kind, value):
    attr = message("OpDesc.Attr")(name="a")
    encode_attr(attr, AttrType[kind], value)
    read = message("OpDesc.Attr").FromString(attr.SerializeToString())
    assert decode_attr(read) == value
    assert AttrType(read.type).name == kind


def test_numpy_values_and_single_values_of_lists_are_stored():
    attr = message("OpDesc.Attr")(name="a")
    encode_attr(attr, AttrType.INTS, np.array([1, 2]))
    encode_attr(attr, AttrType.LONGS, 3)
    assert list(attr.ints) == [1, 2]
    assert list(attr.longs) == [3]


def test_program_round_trip():
    net = Network()
    net.x.stop_gradient = True
    program = again(net.main)
    assert program_to_bytes(program) == program_to_bytes(net.main)
    assert str(program) == str(net.main.clone()) or sorted(program.global_block().vars) == sorted(
        net.main.global_block().vars
    )
    block = program.global_block()
    assert [op.type for op in block.ops] == ["mul", "elementwise_add", "relu"]
    for var in net.main.list_vars():
        copy = block.var(var.name)
        for field in ("shape", "dtype", "type", "lod_level", "persistable", "stop_gradient"):
            assert getattr(copy, field) == getattr(var, field), (var.name, field)
        assert copy.need_check_feed == var.need_check_feed
        assert isinstance(copy, Parameter) == isinstance(var, Parameter)


def test_kinds_of_attributes_come_from_the_registry():
    program = Program()
    block = program.global_block()
    out = block.create_var(name="o", dtype="float32", persistable=True)
    attrs = {"shape": [2], "dtype": 5, "value": 1}
    block.append_op("fill_constant", {}, {"Out": [out]}, attrs)
    stored = {a.name: a for a in program_to_desc(program).blocks[0].ops[0].attrs}
    assert AttrType(stored["value"].type) is AttrType.FLOAT
    assert AttrType(stored["shape"].type) is AttrType.LONGS
    assert AttrType(stored["dtype"].type) is AttrType.INT
    assert AttrType(stored["op_role"].type) is AttrType.INT


def test_attributes_keep_the_kind_of_their_file():
    desc = program_to_desc(Network().main)
    desc.blocks[0].ops[2].attrs.add(name="later_list", type=AttrType.STRINGS)
    desc.blocks[0].ops[2].attrs.add(name="later_number", type=AttrType.LONG, l=1)
    desc.blocks[0].ops[2].type = "lars_momentum"
    del desc.blocks[0].ops[2].inputs[:]
    for slot in ("Param", "Grad", "Velocity", "LearningRate"):
        desc.blocks[0].ops[2].inputs.add(parameter=slot, arguments=["w"])
    decay = desc.blocks[0].ops[2].attrs.add(name="lars_weight_decay", type=AttrType.FLOATS)
    decay.floats.append(0.5)
    program = program_from_bytes(desc.SerializeToString(), source="model")
    assert program.global_block().ops[2].attr("lars_weight_decay") == 0.5
    for form in (program, program.clone()):
        stored = {a.name: a for a in program_to_desc(form).blocks[0].ops[2].attrs}
        assert AttrType(stored["later_list"].type) is AttrType.STRINGS
        assert AttrType(stored["later_number"].type) is AttrType.LONG
        assert list(stored["lars_weight_decay"].floats) == [0.5]


def test_sub_blocks():
    program = Network().main
    inner = program._create_block()
    program._rollback()
    op = program.global_block().ops[-1]
    op._set_attr("sub_block", inner)
    inner.create_var(name="inside", shape=[1], dtype="int64")
    copy = again(program)
    assert copy.global_block().ops[-1].attr("sub_block") is copy.blocks[1]
    assert copy.blocks[1].parent_idx == 0
    assert copy.blocks[1].var("inside").dtype == VarKind.INT64


def test_old_values_of_outputs_are_not_listed():
    net = Network()
    inner = net.main._create_block()
    net.main._rollback()
    attrs = {"sub_block": inner, "is_scalar_condition": True}
    block = net.main.global_block()
    op = block.append_op("conditional_block", {"Cond": [net.steps]}, {"Out": [net.y]}, attrs)
    assert op.input("Out") == ["y"]
    stored = program_to_desc(net.main).blocks[0].ops[-1]
    assert [slot.parameter for slot in stored.inputs] == ["Cond"]
    assert again(net.main).global_block().ops[-1].input("Out") == ["y"]


def test_gradient_ops_find_their_forward_ops():
    net = Network()
    block = net.main.global_block()
    loss = block.create_var(name="loss", dtype="float32")
    block.append_op("mean", {"X": [net.y]}, {"Out": [loss]})
    append_backward(loss)
    desc = program_to_desc(net.main)
    # As Paddle writes it: the gradient of relu reads only what its kernel needs.
    grad = next(op for op in desc.blocks[0].ops if op.type == "relu_grad")
    for slot in [slot for slot in grad.inputs if slot.parameter == "X"]:
        grad.inputs.remove(slot)
    program = program_from_bytes(desc.SerializeToString(), source="model")
    uids = {op.uid: op for op in program.global_block().ops}
    linked = [op for op in program.global_block().ops if op.forward_uid is not None]
    assert sorted(op.type for op in linked) == [
        "elementwise_add_grad",
        "mean_grad",
        "mul_grad",
        "relu_grad",
    ]
    for op in linked:
        assert op.type == uids[op.forward_uid].type + "_grad"
    (number,) = {op.backward_id for op in linked}
    assert number is not None
    assert number not in {op.backward_id for op in net.main.global_block().ops}
    net.start()
    expected = net.run(fetch="w@GRAD")
    assert np.array_equal(net.run(program, "w@GRAD"), expected)
    assert expected.any()


@pytest.mark.parametrize(
    "name", ["paddle18/__model__", "paddle18/saved.pdmodel", "paddle26/saved.pdmodel"]
)
def test_programs_of_paddle_are_read(name):
    program = program_from_bytes((GOLDEN / name).read_bytes(), source=name)
    block = program.global_block()
    assert "mul" in [op.type for op in block.ops]
    assert block.var("w").shape == (3, 4)
    assert block.var("x").need_check_feed


def spoil(change):
    desc = program_to_desc(Network().main)
    change(desc.blocks[0])
    return desc.SerializePartialToString()


def unknown_op(block):
    block.ops[0].type = "no_such_op"


def unknown_kind(block):
    block.vars[0].type.type = VarKind.VOCAB


def undeclared(block):
    block.ops[0].inputs[0].arguments[0] = "nowhere"


def wrong_block(block):
    block.ops[0].attrs.add(name="sub_block", type=AttrType.BLOCK, block_idx=5)


def lost_input(block):
    del block.ops[0].inputs[:]


def wrong_type(block):
    block.vars[0].type.lod_tensor.tensor.data_type = VarKind.READER
    block.vars[0].type.lod_tensor.tensor.ClearField("data_type")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (unknown_op, "uses ops that fleetx.static does not have: no_such_op"),
        (unknown_kind, "is of kind 27"),
        (undeclared, "uses the variable 'nowhere', which is not declared"),
        (wrong_block, "runs block 5, but there are only 1"),
        (lost_input, "op number 0 of block 0: .*needs input"),
        (wrong_type, "lacks .*data_type"),
    ],
)
def test_impossible_programs_are_refused_by_name(change, problem):
    with pytest.raises(FormatError, match=f"^model: .*{problem}"):
        program_from_bytes(spoil(change), source="model")


def test_text_is_not_a_program():
    with pytest.raises(TypeError, match="bytes, not str"):
        Program.parse_from_string("text")


def test_values_that_do_not_fit_are_named():
    program = Network().main
    program.global_block().ops[0]._set_attr("x_num_col_dims", 1.5)
    with pytest.raises(ValueError, match="'x_num_col_dims' of op 'mul' is 1.5.*kind INT"):
        program_to_bytes(program)
