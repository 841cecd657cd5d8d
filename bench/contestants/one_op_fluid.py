"""Programs of one op, as Paddle's op tests have them (paddle.fluid): runs on Paddle 1.8.5 and on
this project. A step builds a program and runs it once, and a second one with gradients
("programs"), or runs an op without a program 24 times on changed inputs ("numeric")."""

import sys

import numpy as np
from loop import serve

import paddle.fluid as fluid
from paddle.fluid import core
from paddle.fluid.op import Operator

rng = np.random.RandomState(0)
NUMERIC_RUNS = 24


def convolution(i):
    """Return inputs and attributes of one of several small convolutions."""
    channels, size = 3 + i % 4, 1 + i % 3
    inputs = {
        "Input": rng.random_sample((2, channels, 5, 5)).astype("float32"),
        "Filter": rng.random_sample((4, channels, size, size)).astype("float32"),
    }
    attrs = {"strides": [1, 1], "paddings": [i % 2, i % 2], "dilations": [1, 1], "groups": 1}
    return inputs, attrs


def build(inputs, attrs, with_gradients):
    """Return a program of the op, and what to fetch."""
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        block = program.global_block()
        for name, value in inputs.items():
            block.create_var(name=name, shape=value.shape, dtype="float32", stop_gradient=False)
        output = block.create_var(name="Output", dtype="float32", stop_gradient=False)
        slots = {name: [block.var(name)] for name in inputs}
        block.append_op(type="conv2d", inputs=slots, outputs={"Output": [output]}, attrs=attrs)
        if not with_gradients:
            return program, ["Output"]
        pairs = fluid.backward.append_backward(
            fluid.layers.mean(output), parameter_list=list(inputs)
        )
        return program, [grad.name for _, grad in pairs]


def programs(i):
    """Build and run both programs."""
    inputs, attrs = convolution(i)
    for with_gradients in (False, True):
        program, fetches = build(inputs, dict(attrs), with_gradients)
        fluid.Executor(fluid.CPUPlace()).run(program, feed=inputs, fetch_list=fetches)


def numeric(i):
    """Run one op on changed inputs, as a numeric gradient does."""
    inputs, attrs = convolution(i)
    scope, place = core.Scope(), core.CPUPlace()
    for name, value in inputs.items():
        scope.var(name).get_tensor().set(value, place)
    output = scope.var("Output").get_tensor()
    op = Operator("conv2d", Input="Input", Filter="Filter", Output="Output", **attrs)
    changed = scope.find_var("Filter").get_tensor()
    for run in range(NUMERIC_RUNS):
        at = run // 2
        changed._set_float_element(at, changed._get_float_element(at) + (-0.005, 0.005)[run % 2])
        op.run(scope, place)
        np.array(output)


serve(programs if "programs" in sys.argv else numeric, 20)
