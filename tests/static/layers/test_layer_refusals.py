"""Layers refuse what they cannot take when they are called, in a sentence that names the
argument."""

import numpy as np
import pytest

from fleetx import static
from fleetx.static import layers, tensor
from fleetx.static.errors import EnforceNotMet


@pytest.fixture(autouse=True)
def _program():
    with static.program_guard(static.Program(), static.Program()), static.unique_name.guard():
        yield


def matrix(dtype="float32"):
    return static.data(f"x_{dtype}", [3, 4], dtype)


NOT_VARIABLES = {
    "gather": lambda: layers.gather([1, 2], matrix("int64")),
    "gather_nd": lambda: layers.gather_nd(1, matrix("int64")),
    "scatter": lambda: layers.scatter(1, matrix("int64"), matrix()),
    "scatter_nd_add": lambda: layers.scatter_nd_add(matrix(), matrix("int64"), np.ones(3)),
    "scatter_nd": lambda: layers.scatter_nd(matrix("int64"), np.ones(3), [3]),
    "clamp": lambda: layers.clamp(1, min=0.0),
    "data_norm": lambda: layers.data_norm([1]),
    "diag_embed": lambda: layers.diag_embed([1, 2]),
    "split": lambda: layers.split(np.ones((2, 4)), 2),
    "center_loss": lambda: layers.center_loss(1, matrix("int64"), 3, 0.1, None),
}


@pytest.mark.parametrize("layer", NOT_VARIABLES)
def test_what_is_no_variable_is_a_type_error(layer):
    with pytest.raises(TypeError, match=layer):
        NOT_VARIABLES[layer]()


WRONG_TYPES = {
    "assign": [lambda: layers.assign([1.0, 2.0]), lambda: layers.assign(np.ones(2))],
    "fill_constant": [lambda t=t: layers.fill_constant([2], t, 1) for t in ("int8", "uint8")],
    "randn": [lambda: layers.randn([2], dtype="float16"), lambda: layers.randn([2], dtype="int64")],
    "dot": [lambda: layers.dot(matrix("bool"), matrix("bool"))],
    "reverse": [lambda: layers.reverse(matrix("int8"), 0), lambda: layers.reverse(matrix(), 1.5)],
}


@pytest.mark.parametrize("layer", WRONG_TYPES)
def test_types_that_paddle_refuses(layer):
    for call in WRONG_TYPES[layer]:
        with pytest.raises(TypeError, match=layer):
            call()


def test_later_functions_take_more_types_than_the_layers_of_1_x():
    assert tensor.full([2], 1, "int8").dtype == static.VarType.INT8
    assert tensor.assign([1.0, 2.0]).dtype == static.VarType.FP32
    assert tensor.assign(np.ones(2)).dtype == static.VarType.FP64


WRONG_VALUES = {
    "shape of fill_constant": lambda: layers.fill_constant([2, -1], "float32", 1),
    "axis of reverse": lambda: layers.reverse(matrix(), 2),
    "is -3": lambda: layers.reverse(matrix(), -3),
    r"is \[\]": lambda: layers.reverse(matrix(), []),
    "dropout_prob": lambda: layers.dropout(matrix(), 1.5),
    "dropout_implementation": lambda: layers.dropout(matrix(), 0.5, dropout_implementation="x"),
    "reduction": lambda: layers.kldiv_loss(matrix(), matrix(), reduction="all"),
    "groups": lambda: layers.group_norm(static.data("i", [2, 4, 3, 3]), 0),
    "pool_type": lambda: layers.sequence_pool(static.data("s", [-1, 4], lod_level=1), "median"),
    "filter_stride": lambda: layers.sequence_conv(
        static.data("s", [-1, 4], lod_level=1), 2, filter_stride=2
    ),
}


@pytest.mark.parametrize("argument", WRONG_VALUES)
def test_a_value_out_of_range_is_refused_by_name(argument):
    with pytest.raises(EnforceNotMet, match=argument):
        WRONG_VALUES[argument]()


@pytest.mark.parametrize("channels_first", [True, False])
def test_transposed_convolutions_take_numbers_with_a_fraction(channels_first):
    layer = layers.conv2d_transpose if channels_first else layers.conv3d_transpose
    shape = [2, 3, 4, 4] if channels_first else [2, 3, 4, 4, 4]
    with pytest.raises(TypeError, match="data type of 'input'"):
        layer(static.data("image", shape, "int32"), 2, filter_size=3)


def test_clamp_with_one_limit():
    x = static.data("x", [3])
    low, high = layers.clamp(x, min=0.0), layers.clamp(x, max=0.5)
    found = static.Executor().run(
        feed={"x": np.array([-1, 0.2, 2], "float32")}, fetch_list=[low, high]
    )
    np.testing.assert_allclose(found[0], [0, 0.2, 2])
    np.testing.assert_allclose(found[1], [-1, 0.2, 0.5])
