"""Functions of several dimensions from one definition."""

import inspect

import pytest

from fleetx.static import layers
from fleetx.static.building.spatial_variants import of_axes, with_first
from fleetx.static.nn import functional as F


def mean(n: int, x: list[int], scale: int = 1, data_format: str = "NCHW") -> tuple:
    """Average images."""
    return n, x, scale, data_format


def test_the_first_argument_and_the_layout_are_those_of_the_dimensions():
    volumes = of_axes(mean, "mean3d", 3)
    assert volumes([1]) == (3, [1], 1, "NCDHW")
    assert volumes([1], 2, "NDHWC") == (3, [1], 2, "NDHWC")
    assert volumes(x=[1], data_format="NDHWC") == (3, [1], 1, "NDHWC")


def test_it_looks_like_a_function_of_its_own():
    signals = of_axes(mean, "mean1d", 1)
    assert (signals.__name__, signals.__doc__) == ("mean1d", "Average signals.")
    assert signals.__module__ == __name__
    parameters = inspect.signature(signals).parameters
    assert list(parameters) == ["x", "scale", "data_format"]
    assert parameters["data_format"].default == "NCL"


def test_wrong_arguments_name_the_public_function():
    with pytest.raises(TypeError, match=r"mean2d\(\) missing a required argument: 'x'"):
        of_axes(mean, "mean2d", 2)()
    with pytest.raises(TypeError, match=r"pool3d\(\) got an unexpected keyword argument 'ksize'"):
        layers.pool3d(None, ksize=2)


def test_other_defaults():
    scaled = with_first(mean, "scaled", 7, doc="Scale.", scale=5)
    assert scaled([0]) == (7, [0], 5, "NCHW")
    assert scaled.__doc__ == "Scale."


def test_layers_of_images_and_volumes_differ_in_their_layout_only():
    for module, flat, deep in ((layers, "conv2d", "conv3d"), (F, "avg_pool2d", "avg_pool3d")):
        two, three = (inspect.signature(getattr(module, name)) for name in (flat, deep))
        differing = [n for n in two.parameters if two.parameters[n] != three.parameters[n]]
        assert differing == ["data_format"]
