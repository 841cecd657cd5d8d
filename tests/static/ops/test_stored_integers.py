"""Integers of saved models as numbers, and values selected by id."""

import numpy as np
import pytest
from op_check import OpProgram, check_op


def test_integers_are_steps_of_a_scale_or_of_a_table():
    x = np.array([[-127, 3], [0, 127]], "int8")
    scale = np.array([2.54], "float32")
    out = {"Out": (x * np.float32(0.02)).astype("float32")}
    check_op("dequantize_abs_max", {"X": x, "Scale": scale}, {"max_range": 127.0}, out, grad_of=[])
    table = np.linspace(0, 1.27, 128, dtype="float32")
    x = np.array([[-128, -1], [0, 127]], "int8")
    expected = np.array([[-table[0], -table[127]], [table[0], table[127]]])
    check_op("dequantize_log", {"X": x, "Dict": table}, {}, {"Out": expected}, grad_of=[])


@pytest.mark.parametrize("padding", [-1, 1])
def test_bytes_of_a_row_are_steps_between_its_first_two_numbers(padding):
    stored = np.arange(16, dtype="uint8").reshape(2, 8)
    ends = np.array([[-1.0, 1.0], [0.0, 2.56]], "float32")
    table = np.concatenate([ends, stored.view("float32")], 1)
    rows = stored * ((ends[:, 1:] - ends[:, :1]) / 256) + ends[:, :1]
    expected = rows[[1, 0, 1]]
    if padding == 1:
        expected[[0, 2]] = 0
    inputs = {"W": table, "Ids": np.array([[1], [0], [1]])}
    attrs, out = {"padding_idx": padding}, {"Out": expected}
    check_op("lookup_table_dequant", inputs, attrs, out, grad_of=[], rtol=1e-5)


def test_an_average_is_kept_beside_the_values():
    x = np.array([[0.5, -2.0]])
    inputs = {"X": x, "InAccum": np.array([1.0]), "InState": np.array([1.0])}
    outputs = {"Out": x, "OutScale": np.array([2.9 / 1.9]), "OutState": np.array([1.9])}
    counts, attrs = {"OutState": 1}, {"moving_rate": 0.9}
    check_op("moving_average_abs_max_scale", inputs, attrs, outputs, counts=counts, grad_of=[])


def test_zeros_are_rounded_to_zero():
    outputs = {"Out": np.zeros((2, 3)), "OutScale": np.zeros(1)}
    check_op("fake_quantize_abs_max", {"X": np.zeros((2, 3))}, {}, outputs, grad_of=[])


def test_answers_are_put_in_the_order_of_the_ids():
    values = np.arange(10.0).reshape(5, 2)
    inputs = {
        "Ids": [np.array([[0], [2], [5], [6]]), np.array([[0], [2], [2], [3]])],
        "Rows": [np.array([[0], [2]]), np.array([[5], [3]]), np.array([[6]])],
        "X": [values[:2], values[2:4], values[4:]],
    }
    outputs = {"Out": [values[[0, 1, 2, 4]], values[[0, 1, 1, 3]]]}
    check_op("merge_ids", inputs, {}, outputs, counts={"Out": 2}, grad_of=[])
    inputs["Ids"] = [np.array([[7]])]
    program = OpProgram("merge_ids", inputs, {}, {})
    with pytest.raises(Exception, match="no values for id 7"):
        program.run(program.outputs["Out"])


def test_one_value_of_all_workers():
    values = [np.full((2, 2), float(i)) for i in range(4)]
    inputs = {"X": values, "TrainerId": np.array([2])}
    check_op("ref_by_trainer_id", inputs, {}, {"Out": values[2]}, grad_of=[])
