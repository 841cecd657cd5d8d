"""Programs of one op, as Paddle's op tests have them (paddle.fluid): runs on Paddle 1.8.5 and on
this project. A step builds a program and runs it once, and a second one with gradients
("programs"), or runs an op without a program 24 times on changed inputs ("numeric"). The op is a
convolution, or each of eight others in turn ("others")."""

import sys

import numpy as np
from loop import serve

import paddle.fluid as fluid
from paddle.fluid import core
from paddle.fluid.op import Operator

rng = np.random.RandomState(0)
NUMERIC_RUNS = 24
# Shapes of the inputs, names of the outputs and attributes; the first input is changed.
OTHERS = [
    ("elementwise_add", {"X": (2, 3, 4), "Y": (2, 3, 4)}, ["Out"], {}),
    ("mul", {"X": (4, 5), "Y": (5, 3)}, ["Out"], {}),
    ("tanh", {"X": (3, 6)}, ["Out"], {}),
    ("softmax", {"X": (3, 6)}, ["Out"], {}),
    ("reduce_sum", {"X": (3, 4, 5)}, ["Out"], {"dim": [1]}),
    ("transpose2", {"X": (3, 4, 5)}, ["Out", "XShape"], {"axis": [0, 2, 1]}),
    (
        "pool2d",
        {"X": (2, 3, 6, 6)},
        ["Out"],
        {"pooling_type": "max", "ksize": [2, 2], "strides": [2, 2], "paddings": [0, 0]},
    ),
    (
        "layer_norm",
        {"X": (4, 6), "Scale": (6,), "Bias": (6,)},
        ["Y", "Mean", "Variance"],
        {"begin_norm_axis": 1, "epsilon": 1e-5},
    ),
]


def convolution(i):
    """Return one of several small convolutions."""
    channels, size = 3 + i % 4, 1 + i % 3
    shapes = {"Filter": (4, channels, size, size), "Input": (2, channels, 5, 5)}
    attrs = {"strides": [1, 1], "paddings": [i % 2, i % 2], "dilations": [1, 1], "groups": 1}
    return "conv2d", shapes, ["Output"], attrs


def case(i):
    """Return type, inputs, names of outputs and attributes of the i-th op."""
    found = OTHERS[i % len(OTHERS)] if "others" in sys.argv else convolution(i)
    op_type, shapes, outputs, attrs = found
    inputs = {name: rng.random_sample(shape).astype("float32") for name, shape in shapes.items()}
    return op_type, inputs, outputs, dict(attrs)


def build(op_type, inputs, outputs, attrs, with_gradients):
    """Return a program of the op, and what to fetch."""
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        block = program.global_block()
        for name, value in inputs.items():
            block.create_var(name=name, shape=value.shape, dtype="float32", stop_gradient=False)
        for name in outputs:
            block.create_var(name=name, dtype="float32", stop_gradient=False)
        read = {name: [block.var(name)] for name in inputs}
        written = {name: [block.var(name)] for name in outputs}
        block.append_op(type=op_type, inputs=read, outputs=written, attrs=attrs)
        if not with_gradients:
            return program, outputs[:1]
        loss = fluid.layers.mean(block.var(outputs[0]))
        pairs = fluid.backward.append_backward(loss, parameter_list=list(inputs))
        return program, [grad.name for _, grad in pairs]


def programs(i):
    """Build and run both programs."""
    op_type, inputs, outputs, attrs = case(i)
    for with_gradients in (False, True):
        program, fetches = build(op_type, inputs, outputs, dict(attrs), with_gradients)
        fluid.Executor(fluid.CPUPlace()).run(program, feed=inputs, fetch_list=fetches)


def numeric(i):
    """Run one op on changed inputs, as a numeric gradient does."""
    op_type, inputs, outputs, attrs = case(i)
    scope, place = core.Scope(), core.CPUPlace()
    for name, value in inputs.items():
        scope.var(name).get_tensor().set(value, place)
    found = [scope.var(name).get_tensor() for name in outputs]
    names = {name: name for name in [*inputs, *outputs]}
    op = Operator(op_type, **names, **attrs)
    changed = scope.find_var(next(iter(inputs))).get_tensor()
    for run in range(NUMERIC_RUNS):
        at = run // 2
        changed._set_float_element(at, changed._get_float_element(at) + (-0.005, 0.005)[run % 2])
        op.run(scope, place)
        np.array(found[0])


serve(programs if "programs" in sys.argv else numeric, 20)
