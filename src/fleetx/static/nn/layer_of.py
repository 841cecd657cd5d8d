"""Layers from one definition: `ReLU = layer_of("ReLU", F.relu)`, `class Pad1D(_Pad, axes=1)`.

The constructor of a layer made from a function takes the function's arguments besides its inputs,
with the same names and defaults; calling the layer calls the function.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, Concatenate, Generic, Literal, ParamSpec, overload

from fleetx.static.building.adapted import signature_of
from fleetx.static.building.spatial_variants import LAYOUTS
from fleetx.static.graph.variable import Variable
from fleetx.static.nn.layer import Layer

_P = ParamSpec("_P")


class FunctionLayer(Layer, Generic[_P]):
    """Calls its function with the settings that the constructor was given."""

    _function: Callable[..., Any]

    def __init__(self, *args: _P.args, **settings: _P.kwargs) -> None:
        super().__init__()
        self._keep(**settings)

    def _keep(self, **settings: Any) -> None:
        self._settings = settings

    def forward(self, x: Variable) -> Any:
        """Apply the function."""
        return type(self)._function(x, **self._settings)


class InputLayer(FunctionLayer[_P]):
    """A function's layer whose `forward` calls its argument `input`."""

    def forward(self, input: Variable) -> Variable:  # type: ignore[override]  # the name
        """Apply the function."""
        return super().forward(input)


@overload
def layer_of(
    name: str,
    function: Callable[Concatenate[Variable, _P], Any],
    *,
    base: type[FunctionLayer[...]] = ...,
) -> type[FunctionLayer[_P]]: ...
@overload
def layer_of(
    name: str,
    function: Callable[Concatenate[Variable, Variable, _P], Any],
    *,
    base: type[FunctionLayer[...]] = ...,
    inputs: Literal[2],
) -> type[FunctionLayer[_P]]: ...
@overload
def layer_of(
    name: str,
    function: Callable[..., Any],
    *,
    base: type[FunctionLayer[...]] = ...,
    inputs: int = ...,
    arguments: str | None = ...,
    fixed: Mapping[str, Any] | None = ...,
) -> type[FunctionLayer[...]]: ...
def layer_of(
    name: str,
    function: Callable[..., Any],
    *,
    base: type[FunctionLayer[...]] = FunctionLayer,
    inputs: int = 1,
    arguments: str | None = None,
    fixed: Mapping[str, Any] | None = None,
) -> Any:
    """Return a class of layers that call `function`.

    Args:
        name: the name of the class.
        function: takes the inputs of a call first, then the layer's settings.
        base: the class to derive from.
        inputs: the number of the function's arguments that are inputs.
        arguments: the constructor's arguments, if they are not all of the function's or are in
            another order. `name` is accepted without effect.
        fixed: settings that the constructor does not take.
    """
    parameters = signature_of(function).parameters
    names = list(parameters)[inputs:] if arguments is None else arguments.split()
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = inspect.Signature([own, *(parameters[n] for n in names)], return_annotation="None")

    def __init__(self: FunctionLayer[...], *args: Any, **kwargs: Any) -> None:
        try:
            bound = signature.bind(self, *args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}() {error}.") from None
        bound.apply_defaults()
        settings = {n: bound.arguments[n] for n in names if n != "name"}
        FunctionLayer.__init__(self, **settings, **(fixed or {}))

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    __init__.__qualname__ = f"{name}.__init__"
    body = {
        "__init__": __init__,
        "__doc__": function.__doc__,
        # Where pickle finds the class: in the module that calls this function.
        "__module__": sys._getframe(1).f_globals["__name__"],
        "_function": staticmethod(function),
    }
    return type(name, (base,), body)


class Spatial(Layer):
    """A layer for data with 1, 2 or 3 spatial axes; subclasses choose: `class Pad1D(_Pad, axes=1)`.

    `data_format` of the constructor, if any, defaults to the layout with so many axes.
    """

    _axes = 2

    def __init_subclass__(cls, axes: int | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if axes is not None:
            cls._axes = axes
            cls.__init__ = _with_layout(cls, LAYOUTS[axes][0])  # type: ignore[method-assign]


def _with_layout(cls: Any, layout: str) -> Any:
    """Return a copy of a class's constructor with this default of `data_format`, if it has one."""
    init = cls.__init__
    code = init.__code__
    names = code.co_varnames[: code.co_argcount]
    defaults = list(init.__defaults__ or ())
    if "data_format" in names and defaults[place := names.index("data_format") - len(names)]:
        defaults[place] = layout
    copy = FunctionType(code, init.__globals__, "__init__", tuple(defaults), init.__closure__)
    copy.__qualname__ = f"{cls.__qualname__}.__init__"
    copy.__annotations__ = init.__annotations__
    return copy
