"""Settings that a script leaves None: Paddle's ops take their defaults."""

from __future__ import annotations

import numpy as np

import paddle.fluid as fluid


def test_accuracy_and_topk() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1], "int64")
        fetches = [fluid.layers.accuracy(x, y, k=None), *fluid.layers.topk(x, k=None)]
        feed = {
            "x": np.array([[1, 2, 3, 4], [4, 3, 2, 1]], "float32"),
            "y": np.array([[3], [1]], "int64"),
        }
        found = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=fetches)
    assert [part.ravel().tolist() for part in found] == [[0.5], [4.0, 4.0], [3, 0]]
