"""Ops that write into what they read, where that is fed; the values are those of Paddle 1.8.5."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fleetx import static
from fleetx.static.run.single_op import SingleOp


def test_an_op_in_place_changes_a_feed_for_what_follows() -> None:
    program = static.Program()
    block = program.global_block()
    x = block.create_var(name="x", shape=[3], dtype="float32", is_data=True)
    y = block.create_var(name="y", dtype="float32")
    block.append_op(type="scale", inputs={"X": x}, outputs={"Out": x}, attrs={"scale": 2.0})
    block.append_op(type="scale", inputs={"X": x}, outputs={"Out": y}, attrs={"scale": 3.0})
    given = np.ones(3, "float32")
    found = static.Executor().run(program, feed={"x": given}, fetch_list=[x, y])
    np.testing.assert_array_equal(found, [[2, 2, 2], [6, 6, 6]])
    np.testing.assert_array_equal(given, 1)


def test_an_update_of_a_fed_parameter_leaves_the_callers_array_alone() -> None:
    program = static.Program()
    block = program.global_block()
    given = {"p": np.ones(2, "float32"), "g": np.ones(2, "float32"), "r": np.ones(1, "float32")}
    p, g, r = (
        block.create_var(name=n, shape=v.shape, dtype="float32", is_data=True)
        for n, v in given.items()
    )
    inputs = {"Param": p, "Grad": g, "LearningRate": r}
    block.append_op(type="sgd", inputs=inputs, outputs={"ParamOut": p})
    (found,) = static.Executor().run(program, feed=given, fetch_list=[p])
    np.testing.assert_array_equal(found, 0)
    np.testing.assert_array_equal(given["p"], 1)


_BEFORE = {
    "Param": [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]],
    "MeanSquare": [[1.0, 1.1], [1.2, 1.3], [1.4, 1.5]],
    "Moment": [[0.7, 0.6], [0.5, 0.4], [0.3, 0.2]],
    "MeanGrad": [[0.2, 0.1], [0.3, 0.1], [0.2, 0.3]],
}


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_rmsprop_on_a_scope_changes_all_rows(centered: bool, sparse: bool) -> None:
    scope, place = static.Scope(), static.CPUPlace()
    state = {slot: np.array(value, "float32") for slot, value in _BEFORE.items()}
    for slot, value in (*state.items(), ("LearningRate", np.array([0.1], "float32"))):
        scope.var(slot).get_tensor().set(value, place)
    grad = np.zeros((3, 2), "float32")
    if sparse:
        rows = scope.var("Grad").get_selected_rows()
        rows.set_height(3)
        rows.set_rows([2, 0, 2])
        values = np.array([[0.5, 1.0], [2.0, 3.0], [0.25, 0.5]], "float32")
        rows.get_tensor().set(values, place)
        np.add.at(grad, [2, 0, 2], values)
    else:
        grad[:] = [[1.0, -2.0], [3.0, 0.5], [0.25, 4.0]]
        scope.var("Grad").get_tensor().set(grad, place)
    slots = ["Param", "MeanSquare", "Moment", *(["MeanGrad"] if centered else [])]
    names: dict[str, Any] = {slot: slot for slot in (*slots, "Grad", "LearningRate")}
    names |= {f"{slot}Out": slot for slot in slots}
    attrs = {"epsilon": 1e-6, "decay": 0.9, "momentum": 0.1, "centered": centered}
    SingleOp("rmsprop", **names, **attrs).run(scope, place)
    square = 0.9 * state["MeanSquare"] + 0.1 * grad**2
    mean = 0.9 * state["MeanGrad"] + 0.1 * grad if centered else np.zeros_like(grad)
    moment = 0.1 * state["Moment"] + 0.1 * grad / np.sqrt(square - mean**2 + 1e-6)
    wanted = {"MeanSquare": square, "Moment": moment, "Param": state["Param"] - moment}
    for slot, value in wanted.items():
        found = np.asarray(scope.find_var(slot).get_tensor())
        np.testing.assert_allclose(found, value, rtol=1e-5, err_msg=slot)
