"""LayerHelper as scripts with layers of their own use it."""

from __future__ import annotations

import numpy as np

import paddle.fluid as fluid
from paddle.fluid.layer_helper import LayerHelper


def test_a_counter_shared_by_two_layers() -> None:
    def counted(x: fluid.Variable) -> fluid.Variable:
        helper = LayerHelper("counted")
        count, is_new = helper.create_or_get_global_variable(
            name="calls", dtype="float32", shape=[1], persistable=True
        )
        assert is_new == (not made)
        made.append(count)
        if is_new:
            helper.set_variable_initializer(count, fluid.initializer.Constant(2.0))
        return x * count

    made: list[fluid.Variable] = []
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 1])
        out = counted(counted(x))
        assert made[0] is made[1]
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(fluid.default_startup_program())
        (found,) = exe.run(feed={"x": np.ones((1, 1), "float32")}, fetch_list=[out])
    assert found.tolist() == [[4.0]]
