"""A name that is not covered raises an error that refers to the list."""

import importlib

import pytest

import paddle
import paddle.fluid as fluid

LIST = "docs/paddle-compatibility.md"


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("paddle", "no_such_function"),
        ("paddle.fluid", "no_such_function"),
        ("paddle.fluid.layers", "no_such_layer"),
        ("paddle.fluid.optimizer", "NoSuchOptimizer"),
        ("paddle.static.nn", "no_such_layer"),
        ("paddle.nn.functional", "no_such_function"),
        ("paddle.dataset", "no_such_set"),
    ],
)
def test_attribute(module, name):
    with pytest.raises(AttributeError, match=f"{module}.{name} is not covered") as caught:
        getattr(importlib.import_module(module), name)
    assert LIST in str(caught.value)
    assert not hasattr(importlib.import_module(module), name)


def test_module():
    with pytest.raises(ImportError, match=r"paddle\.no_such_module is not covered") as caught:
        importlib.import_module("paddle.no_such_module")
    assert LIST in str(caught.value)


def test_from_import_of_a_package_says_the_same():
    with pytest.raises(ImportError, match="paddle.fluid.no_such_name is not covered"):
        from paddle.fluid import no_such_name  # noqa: F401


def test_eager_mode_is_left_to_pytorch():
    with pytest.raises(AttributeError, match="eager mode .* PyTorch"):
        fluid.dygraph.guard()
    with pytest.raises(RuntimeError, match="eager mode"):
        paddle.disable_static()
    assert paddle.in_dynamic_mode() is False
    assert fluid.in_dygraph_mode() is False


def test_other_packages_are_not_touched():
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_package'"):
        importlib.import_module("no_such_package")
