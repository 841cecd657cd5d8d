"""Layers that are made from functions."""

import copy
import inspect
import pickle

import pytest

from fleetx import static
from fleetx.static import nn
from fleetx.static.nn import functional as F
from fleetx.static.nn.layer_of import FunctionLayer, layer_of


def test_the_constructor_takes_what_the_function_takes_besides_its_input():
    arguments = list(inspect.signature(F.max_pool2d).parameters.values())[1:]
    assert list(inspect.signature(nn.MaxPool2D).parameters.values()) == arguments
    assert list(inspect.signature(nn.Softmax).parameters) == ["axis", "name"]
    assert nn.ReLU.__doc__ == F.relu.__doc__


def test_arguments_by_position_and_by_keyword():
    assert repr(nn.MaxPool2D(3, 2)) == repr(nn.MaxPool2D(stride=2, kernel_size=3))
    assert "kernel_size=3, stride=2" in repr(nn.MaxPool2D(3, 2))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: nn.MaxPool2D(), r"MaxPool2D\(\) missing a required argument: 'kernel_size'"),
        (lambda: nn.ReLU(alpha=1), r"ReLU\(\) got an unexpected keyword argument 'alpha'"),
        (lambda: nn.ELU(1.0, None, 2), r"ELU\(\) too many positional arguments"),
    ],
)
def test_wrong_arguments_name_the_layer(build, message):
    with pytest.raises(TypeError, match=message):
        build()


def test_a_class_like_others():
    class Narrow(nn.Hardtanh):
        def __init__(self):
            super().__init__(-0.5, 0.5)

    assert issubclass(nn.MSELoss, nn.Layer)
    assert isinstance(Narrow(), FunctionLayer)
    assert pickle.loads(pickle.dumps(nn.GELU)) is nn.GELU
    assert repr(copy.deepcopy(nn.LeakyReLU(0.2))) == repr(nn.LeakyReLU(0.2))
    main = static.Program()
    with static.program_guard(main, static.Program()):
        Narrow()(static.data("x", [2, 3]))
    assert [(op.type, op.attr("t_max")) for op in main.global_block().ops] == [("brelu", 0.5)]


def test_arguments_in_another_order():
    made = layer_of("Swapped", F.hardtanh, arguments="max min")
    assert list(inspect.signature(made).parameters) == ["max", "min"]
    assert made.__module__ == __name__
    assert made(2.0, -2.0)._settings == {"max": 2.0, "min": -2.0}
