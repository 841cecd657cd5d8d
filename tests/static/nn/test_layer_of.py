"""Layers that are made from functions."""

import copy
import inspect
import pickle

import pytest

from fleetx import static
from fleetx.static import nn
from fleetx.static.nn import functional as F
from fleetx.static.nn.layer_of import FunctionLayer, layer_of

PADS = (nn.Pad1D, nn.Pad2D, nn.Pad3D)


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


def test_settings_that_the_constructor_does_not_take():
    made = layer_of("Wide", F.hardtanh, arguments="name", fixed={"min": -9.0, "max": 9.0})
    assert list(inspect.signature(made).parameters) == ["name"]
    assert made()._settings == {"min": -9.0, "max": 9.0}
    with pytest.raises(TypeError, match=r"Wide\(\) got an unexpected keyword argument 'min'"):
        made(min=0.0)


def test_the_default_layout_follows_the_number_of_axes():
    layouts = [inspect.signature(c).parameters["data_format"].default for c in PADS]
    assert layouts == ["NCL", "NCHW", "NCDHW"]
    assert [c(1)._pad for c in PADS] == [[1] * 2, [1] * 4, [1] * 6]
    assert inspect.signature(nn.Conv1D).parameters["data_format"].default is None
    with pytest.raises(TypeError, match=r"Pad3D.__init__\(\) missing 1 required"):
        nn.Pad3D()


def test_a_subclass_keeps_the_axes_of_its_base():
    class Mirrored(nn.Pad3D):
        def __init__(self):
            super().__init__(1, "reflect")

    main = static.Program()
    with static.program_guard(main, static.Program()):
        Mirrored()(static.data("x", [2, 1, 4, 4, 4]))
    (op,) = main.global_block().ops
    assert (op.attr("mode"), op.attr("data_format")) == ("reflect", "NCDHW")
