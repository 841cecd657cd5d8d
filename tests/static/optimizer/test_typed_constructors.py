"""Type checkers know what the optimizers of 2.x take: every argument by name and type."""

from __future__ import annotations

import inspect

import pytest

from fleetx.static.optimizer import optimizers_of_2x


@pytest.mark.parametrize("name", optimizers_of_2x.__all__)
def test_arguments_are_declared_with_types(name: str) -> None:
    parameters = inspect.signature(getattr(optimizers_of_2x, name)).parameters.values()
    assert parameters
    for parameter in parameters:
        assert parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD, parameter
        assert parameter.annotation not in (inspect.Parameter.empty, "Any"), parameter


def test_a_misspelt_argument_is_named() -> None:
    with pytest.raises(TypeError, match=r"SGD\(\) .*'learning_rat'"):
        optimizers_of_2x.SGD(learning_rat=0.1)  # type: ignore[call-arg]
