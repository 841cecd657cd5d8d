"""Values rounded to the steps of a few bits, and back."""

import numpy as np
import pytest
from op_check import check_op

from fleetx.static.errors import ShapeError

X = np.array([[-1.0, 0.3, 0.5], [0.2, -0.05, 0.1]])


def test_steps_of_the_largest_value():
    steps = np.array([[-7.0, 2.0, 4.0], [1.0, 0.0, 1.0]])  # 3.5 becomes 4
    expected = {"Out": steps, "OutScale": np.array([1.0])}
    check_op("fake_quantize_abs_max", {"X": X}, {"bit_length": 4}, expected)


def test_steps_of_the_largest_value_of_each_channel():
    steps = np.array([[-7.0, 2.0, 4.0], [7.0, -2.0, 4.0]])
    expected = {"Out": steps, "OutScale": np.array([1.0, 0.2])}
    check_op("fake_channel_wise_quantize_abs_max", {"X": X}, {"bit_length": 4}, expected)


STATE = {"InScale": np.array([0.4]), "InAccum": np.array([0.5]), "InState": np.array([1.0])}


@pytest.mark.parametrize("is_test", [False, True])
def test_steps_of_a_moving_average(is_test):
    accum, state = (0.5, 1.0) if is_test else (0.8 * 0.5 + 1.0, 0.8 + 1.0)
    scale = 0.4 if is_test else accum / state
    clipped = np.clip(X, -scale, scale) / scale * 127
    steps = np.sign(clipped) * np.floor(abs(clipped) + 0.5)
    attrs = {"bit_length": 8, "moving_rate": 0.8, "is_test": is_test}
    numbers = {"OutScale": scale, "OutState": state, "OutAccum": accum}
    expected = {slot: np.array([number]) for slot, number in numbers.items()}
    inputs = {"X": X, **STATE}
    name = "fake_quantize_moving_average_abs_max"
    check_op(name, inputs, attrs, {**expected, "Out": steps})
    name = "fake_quantize_dequantize_moving_average_abs_max"
    check_op(name, inputs, attrs, {**expected, "Out": steps * scale / 127}, grad_of=[])


def test_rounding_does_not_stop_gradients():
    from fleetx import static

    with static.program_guard(static.Program(), static.Program()):
        x = static.data("x", [2, 3], "float64")
        x.stop_gradient = False
        block = static.default_main_program().global_block()
        scale = static.layers.fill_constant([1], "float64", 0.4)
        out = block.create_var(name="out")
        block.append_op(
            type="fake_quantize_dequantize_moving_average_abs_max",
            inputs={"X": x, "InScale": scale},
            outputs={"Out": out, "OutScale": block.create_var(name="scale")},
            attrs={"is_test": True},
        )
        (grad,) = static.gradients([static.layers.reduce_sum(out)], [x])
        (found,) = static.Executor().run(feed={"x": X}, fetch_list=[grad])
    assert found.tolist() == np.ones((2, 3)).tolist()


def test_values_of_steps():
    steps = np.array([[-7.0, 2.0, 4.0], [7.0, -2.0, 4.0]])
    inputs = {"X": steps, "Scale": np.array([0.5])}
    out = {"Out": steps * 0.5 / 7}
    check_op("fake_dequantize_max_abs", inputs, {"max_range": 7.0}, out)
    rows, columns = np.array([0.5, 2.0]), np.array([1.0, 2.0, 3.0])
    name = "fake_channel_wise_dequantize_max_abs"
    inputs = {"X": steps, "Scales": [rows]}
    check_op(name, inputs, {"quant_bits": [4]}, {"Out": steps * rows[:, None] / 7})
    inputs = {"X": steps, "Scales": [columns, np.array([0.3])]}
    check_op(name, inputs, {"quant_bits": [4, 8]}, {"Out": steps * columns * 0.3 / 7 / 127})


def test_what_is_missing_or_too_large_is_named():
    with pytest.raises(ShapeError, match="between 1 and 16, not 17"):
        check_op("fake_quantize_abs_max", {"X": X}, {"bit_length": 17})
    inputs = {"X": X, "InScale": np.array([0.4])}
    with pytest.raises(RuntimeError, match="needs InAccum and InState"):
        check_op("fake_quantize_moving_average_abs_max", inputs)
