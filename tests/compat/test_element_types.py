"""`paddle.fluid.layers` takes the element types of 1.8; `paddle` those of 2.x."""

import pytest

import paddle
import paddle.fluid as fluid
from paddle.fluid.layers import _narrow


@pytest.fixture(autouse=True)
def _program():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        yield


def data(dtype, name="x"):
    return fluid.data(f"{name}_{dtype}", [4, 6], dtype)


REFUSED = {
    "reshape": lambda: fluid.layers.reshape(data("bool"), [6, 4]),
    "transpose": lambda: fluid.layers.transpose(data("bool"), perm=[1, 0]),
    "concat": lambda: fluid.layers.concat([data("bool"), data("bool", "y")]),
    "squeeze": lambda: fluid.layers.squeeze(data("bool"), [0]),
    "elementwise_add": lambda: fluid.layers.elementwise_add(data("bool"), data("bool", "y")),
    "equal": lambda: fluid.layers.equal(data("float16"), data("float16", "y")),
    "reduce_sum": lambda: fluid.layers.reduce_sum(data("float16")),
    "sums": lambda: fluid.layers.sums([data("float16"), data("float16", "y")]),
    "sequence_pool": lambda: fluid.layers.sequence_pool(data("float64"), "sum"),
}


@pytest.mark.parametrize("layer", REFUSED)
def test_later_types_are_refused_by_name(layer):
    with pytest.raises(TypeError, match=f"in {layer} must be"):
        REFUSED[layer]()


def test_layers_of_2_x_take_more():
    assert paddle.reshape(data("bool"), [6, 4]).shape == (6, 4)
    assert paddle.concat([data("bool"), data("bool", "y")]).shape == (8, 6)


def test_every_listed_layer_is_narrowed_and_keeps_its_name():
    for name in _narrow.TYPES:
        assert getattr(fluid.layers, name).__wrapped__.__name__ == name
