"""Names that a module of Paddle has because it imports them from another."""

from __future__ import annotations

import importlib

import pytest

from paddle import _borrowed
from paddle.fluid import framework


def test_a_name_from_a_module_that_only_imports_it() -> None:
    from paddle.fluid.initializer import core
    from paddle.fluid.initializer import framework as by_name
    from paddle.fluid.layers.tensor import LayerHelper, Variable, unique_name
    from paddle.fluid.layers.tensor import core as same

    assert Variable is framework.Variable
    assert by_name is framework
    assert core is same
    assert LayerHelper is importlib.import_module("paddle.fluid.layer_helper").LayerHelper
    assert unique_name is importlib.import_module("paddle.fluid.unique_name")


def test_every_borrowed_name_has_a_home() -> None:
    module = importlib.import_module("paddle.fluid.average")
    for name in [*_borrowed._HOMES, *_borrowed._MODULES]:
        assert getattr(module, name) is not None, name


def test_other_names_are_still_refused() -> None:
    module = importlib.import_module("paddle.fluid.average")
    with pytest.raises(AttributeError, match="not covered"):
        _ = module.no_such_name
    assert "Variable" not in module.__all__
