"""Writes the small files of real Paddle that tests/checkpoint/golden holds.

Run by hand with the Python of a real Paddle, 1.8 or 2.6: `python golden.py FOLDER`. Every value is
fixed, so the tests know what the files must contain.
"""

import os
import sys

import numpy as np

import paddle


def arrays():
    """Return the parameters that every golden file holds."""
    return {
        "w": np.arange(12, dtype="float32").reshape(3, 4) - 5.5,
        "b": np.array([1, 255, 65536], dtype="int64"),
    }


def build(static, layers_data):
    """Make a program y = x * w + b with the fixed parameters."""
    x = layers_data("x")
    block = static.default_main_program().global_block()
    values = arrays()
    w = block.create_parameter(name="w", shape=[3, 4], dtype="float32")
    block.create_parameter(name="b", shape=[3], dtype="int64", trainable=False)
    y = block.create_var(name="y", dtype="float32", shape=[-1, 4])
    block.append_op(
        type="mul",
        inputs={"X": [x], "Y": [w]},
        outputs={"Out": [y]},
        attrs={"x_num_col_dims": 1, "y_num_col_dims": 1},
    )
    scope = static.global_scope()
    for name, value in values.items():
        scope.var(name).get_tensor().set(value, place())
    return x, y


def place():
    """Return the CPU."""
    return paddle.fluid.CPUPlace() if old else paddle.CPUPlace()


def write_old(folder):
    """Write the files of Paddle 1.8."""
    fluid = paddle.fluid
    _, y = build(fluid, lambda name: fluid.data(name, [-1, 3]))
    exe = fluid.Executor(place())
    fluid.io.save_params(exe, folder, filename="combined")
    fluid.save(fluid.default_main_program(), os.path.join(folder, "saved"))
    fluid.io.save_inference_model(folder, ["x"], [y], exe, params_filename="unused")
    tensor = fluid.create_lod_tensor(
        np.arange(6, dtype="float32").reshape(6, 1), [[1, 2], [2, 1, 3]], place()
    )
    scope = fluid.Scope()
    scope.var("seq").get_tensor().set(np.array(tensor), place())
    scope.var("seq").get_tensor().set_lod(tensor.lod())
    program = fluid.Program()
    program.global_block().create_var(name="seq", persistable=True, dtype="float32", lod_level=2)
    with fluid.scope_guard(scope):
        fluid.io.save_persistables(exe, folder, program)


def write_new(folder):
    """Write the files of Paddle 2.6."""
    paddle.enable_static()
    static = paddle.static
    x, y = build(static, lambda name: static.data(name, [-1, 3]))
    exe = static.Executor(place())
    static.save(static.default_main_program(), os.path.join(folder, "saved"))
    static.save_inference_model(os.path.join(folder, "inference"), [x], [y], exe)
    paddle.save(static.default_main_program().state_dict(), os.path.join(folder, "state.pdparams"))
    paddle.disable_static()
    half = paddle.to_tensor([1.0, -2.5, 3.0]).astype("bfloat16")
    layer = paddle.nn.Linear(3, 4)
    layer.weight.set_value(arrays()["w"])
    layer.bias.set_value(np.zeros(4, "float32"))
    schedule = paddle.optimizer.lr.StepDecay(0.5, 3)
    optimizer = paddle.optimizer.Momentum(schedule, parameters=layer.parameters())
    paddle.save(layer.state_dict(), os.path.join(folder, "layer.pdparams"))
    paddle.save(layer.state_dict(), os.path.join(folder, "layer2.pdparams"), protocol=2)
    paddle.save(optimizer.state_dict(), os.path.join(folder, "optimizer.pdopt"))
    paddle.save(
        {"list": [paddle.to_tensor([7.0]), 1, "text"], "half": half},
        os.path.join(folder, "nested.pd"),
    )


def strip_call_stacks(folder):
    """Take the paths of the writing machine out of the saved programs."""
    if old:
        from paddle.fluid.proto import framework_pb2
    else:
        from paddle.base.proto import framework_pb2
    for name in os.listdir(folder):
        if name != "__model__" and not name.endswith(".pdmodel"):
            continue
        program = framework_pb2.ProgramDesc()
        with open(os.path.join(folder, name), "rb") as stream:
            program.ParseFromString(stream.read())
        for block in program.blocks:
            for op in block.ops:
                kept = [attr for attr in op.attrs if attr.name != "op_callstack"]
                del op.attrs[:]
                op.attrs.extend(kept)
        with open(os.path.join(folder, name), "wb") as stream:
            stream.write(program.SerializeToString())


old = paddle.__version__.startswith("1.")
os.makedirs(sys.argv[1], exist_ok=True)
(write_old if old else write_new)(sys.argv[1])
strip_call_stacks(sys.argv[1])
