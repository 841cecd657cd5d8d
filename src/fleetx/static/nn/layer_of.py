"""Layers without parameters, made from functions: `ReLU = layer_of("ReLU", F.relu)`.

The constructor takes what the function takes besides its inputs, under the same names and with the
same defaults; calling the layer calls the function.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from fleetx.static.graph.variable import Variable
from fleetx.static.nn.layer import Layer


class FunctionLayer(Layer):
    """Calls its function with what the constructor was given."""

    _function: Callable[..., Any]

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__()
        self._keep(**settings)

    def _keep(self, **settings: Any) -> None:
        self._settings = settings

    def forward(self, x: Variable) -> Any:
        """Apply the function."""
        return type(self)._function(x, **self._settings)


def layer_of(
    name: str,
    function: Callable[..., Any],
    *,
    base: type[FunctionLayer] = FunctionLayer,
    inputs: int = 1,
    arguments: str | None = None,
) -> type[FunctionLayer]:
    """Return a class of layers that call `function`.

    Args:
        name: the name of the class.
        function: takes the inputs of a call first, then the layer's settings.
        base: the class to derive from.
        inputs: how many of the function's arguments are inputs.
        arguments: the constructor's arguments, where they are not all of the function's or come in
            another order. `name` is accepted without effect.
    """
    parameters = inspect.signature(function).parameters
    names = list(parameters)[inputs:] if arguments is None else arguments.split()
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = inspect.Signature([own, *(parameters[n] for n in names)], return_annotation="None")

    def __init__(self: FunctionLayer, *args: Any, **kwargs: Any) -> None:
        try:
            bound = signature.bind(self, *args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}() {error}.") from None
        bound.apply_defaults()
        FunctionLayer.__init__(self, **{n: bound.arguments[n] for n in names if n != "name"})

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    __init__.__qualname__ = f"{name}.__init__"
    body = {
        "__init__": __init__,
        "__doc__": function.__doc__,
        # Where the class is to be found, for pickle: in the module that calls this function.
        "__module__": sys._getframe(1).f_globals["__name__"],
        "_function": staticmethod(function),
    }
    return type(name, (base,), body)
