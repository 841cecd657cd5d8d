"""Layers that are declared: checks of arguments, one op, functions of another generation."""

import inspect

import pytest

from fleetx import static
from fleetx.static import layers, tensor
from fleetx.static.building.adapted import adapted
from fleetx.static.building.argument_checks import as_dtype, each, one_of, optional
from fleetx.static.building.op_layer import changed, checked, op_layer
from fleetx.static.graph.variable import Variable

FLOATS = ("float32", "float64")


@pytest.fixture(autouse=True)
def _program():
    with static.program_guard(static.Program(), static.Program()), static.unique_name.guard():
        yield


@op_layer("x", op="pad", x=FLOATS)
def padded(x, paddings: "Sequence[int]", pad_value: "float" = 0.0, name=None):  # noqa: F821
    """Pad x."""


def last_op():
    return static.default_main_program().current_block().ops[-1]


def test_a_declared_layer_appends_its_op():
    out = padded(static.data("x", [2, 3]), (0, 1, 0, 0), 2, name="wide")
    assert (out.name, out.shape) == ("wide.tmp_0", (3, 3))
    assert last_op().type == "pad"
    assert last_op().attr("paddings") == [0, 1, 0, 0]
    assert isinstance(last_op().attr("pad_value"), float)
    assert padded.__doc__ == "Pad x."
    assert list(inspect.signature(padded).parameters) == ["x", "paddings", "pad_value", "name"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((), {}), r"padded\(\) missing a required argument: 'x'"),
        (((1, 2, 3, 4, 5), {}), r"padded\(\) too many positional arguments"),
        (((1,), {"x": 1}), r"padded\(\) multiple values for argument 'x'"),
        (((1, 2), {"mode": 1}), r"padded\(\) got an unexpected keyword argument 'mode'"),
        (((1, [0]), {}), "type of 'x' in padded must be Variable, but received int"),
    ],
)
def test_wrong_arguments_name_the_layer(arguments, message):
    args, kwargs = arguments
    with pytest.raises(TypeError, match=message):
        padded(*args, **kwargs)


@op_layer("X=picture", op="pad", output="Out", unused="mode name", picture=FLOATS)
def framed(picture, paddings, mode=None, name=None):
    """Pad all sides alike."""
    if paddings < 0:
        raise ValueError(f"paddings of framed must not be negative, but is {paddings}.")
    return changed(paddings=[paddings] * 4, pad_value=1.0)


def test_a_body_changes_what_the_op_gets():
    x = static.data("x", [2, 3])
    out = framed(x, 1, "constant", name="without effect")
    assert (out.name, out.shape) == ("framed_0.tmp_0", (4, 5))
    assert last_op().input("X") == ["x"]
    assert (last_op().attr("paddings"), last_op().attr("pad_value")) == ([1] * 4, 1.0)
    assert not last_op().has_attr("mode")
    with pytest.raises(ValueError, match="must not be negative, but is -1"):
        framed(x, -1)


def test_an_attribute_that_cannot_be_converted_is_named():
    with pytest.raises(TypeError, match="pad_value of padded must be a number, not 'much'"):
        padded(static.data("x", [2]), [0, 1], "much")
    with pytest.raises(TypeError, match="paddings of padded must be a list, not 3"):
        padded(static.data("x", [2]), 3)


def test_an_argument_is_a_tensor_or_an_attribute():
    ids = static.data("ids", [2, 1], "int64")
    layers.one_hot(ids, 5)
    assert last_op().attr("depth") == 5
    depth = static.data("depth", [1], "int32")
    layers.one_hot(ids, depth)
    assert last_op().input("depth_tensor") == ["depth"]
    assert depth.stop_gradient


@checked(
    x=optional(FLOATS),
    many=each(Variable),
    size=int | None,
    kind=as_dtype("int64"),
    way=one_of("a"),
)
def free(x=None, many=(), size=None, kind="int64", way="a"):
    """Return the arguments."""
    return x, many, size, kind, way


def test_rules_of_arguments():
    x = static.data("x", [1])
    assert free(x, [x], 3) == (x, [x], 3, "int64", "a")
    assert free() == (None, (), None, "int64", "a")
    for wrong, message in (
        ({"x": 1}, "'x' in free must be Variable"),
        ({"many": [x, 2]}, r"'many\[1\]' in free must be Variable"),
        ({"size": "2"}, "'size' in free must be int or NoneType, but received str"),
        ({"kind": "float32"}, "'kind' in free must be int64, but received float32"),
    ):
        with pytest.raises(TypeError, match=message):
            free(**wrong)
    with pytest.raises(ValueError, match="way of free must be 'a', but received 'b'"):
        free(way="b")
    with pytest.raises(TypeError, match="unexpected keyword argument 'y'"):
        free(y=1)


def joined(input, other, dim=None, out=None):
    """Join two values."""
    return input, other, dim, out


def test_adapted_functions_have_the_parameters_of_their_generation():
    new = adapted(joined, "x -> input, y -> other, axis -> dim, name", fixed={"out": 7}, axis=1)
    assert new(1, 2) == (1, 2, 1, 7)
    assert new(y=1, x=2, axis=3, name="no effect") == (2, 1, 3, 7)
    assert (new.__name__, new.__doc__, new.__module__) == ("joined", "Join two values.", __name__)
    parameters = inspect.signature(new).parameters
    assert [(p.name, p.default) for p in parameters.values()][2:] == [("axis", 1), ("name", None)]
    with pytest.raises(TypeError, match=r"joined\(\) missing a required argument: 'y'"):
        new(1)
    with pytest.raises(TypeError, match=r"joined\(\) got an unexpected keyword argument 'dim'"):
        new(1, 2, dim=1)
    with pytest.raises(TypeError, match=r"joined\(\) multiple values for argument 'x'"):
        new(1, 2, x=1)


def test_tensor_functions_forward_to_layers():
    x = static.data("m", [3, 3])
    assert tensor.trace(x, axis1=1, axis2=0).shape == (1,)
    assert (last_op().attr("dim1"), last_op().attr("dim2")) == (1, 0)
    with pytest.raises(TypeError, match=r"trace\(\) got an unexpected keyword argument 'dim1'"):
        tensor.trace(x, dim1=0)
