"""Functions for signals, images and volumes from one definition.

A definition takes the number of spatial axes first, and its docstring describes images::

    def _pool(n: int, input, ..., data_format="NCHW"):
        '''Take the maximum or mean of windows of images.'''

    pool2d, pool3d = of_axes(_pool, "pool2d", 2), of_axes(_pool, "pool3d", 3)

What users call has the definition's arguments without the first one, and the layout of its number
of axes as the default of `data_format`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from fleetx.static.building.adapted import check_arguments, signature_of

_P = ParamSpec("_P")
_T = TypeVar("_T")
_R = TypeVar("_R")

# By the number of spatial axes: the layout with the channels in dimension 1, and with them last.
LAYOUTS = {1: ("NCL", "NLC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}
_DATA = {1: "signals", 2: "images", 3: "volumes"}


def of_axes(function: Callable[Concatenate[int, _P], _R], name: str, n: int) -> Callable[_P, _R]:
    """Return the function for data with `n` spatial axes, under its public name."""
    doc = (function.__doc__ or "").replace("images", _DATA[n])
    return with_first(function, name, n, doc=doc, data_format=LAYOUTS[n][0])


def of_op(
    function: Callable[Concatenate[str, _P], _R], name: str, doc: str | None = None
) -> Callable[_P, _R]:
    """Return the function for one op, which has its name; {op} in the docstring stands for it."""
    return with_first(function, name, name, doc=doc or (function.__doc__ or "").format(op=name))


def with_first(
    function: Callable[Concatenate[_T, _P], _R],
    name: str,
    value: _T,
    *,
    doc: str | None = None,
    **defaults: Any,
) -> Callable[_P, _R]:
    """Return the function with its first argument filled in and other defaults, where it has them.

    Unlike a partial object it is a function with a name, a docstring and a signature.
    """
    whole = signature_of(function)
    _, *parameters = whole.parameters.values()
    signature = whole.replace(
        parameters=[
            p.replace(default=defaults[p.name]) if p.name in defaults else p for p in parameters
        ]
    )

    places = {p.name: i for i, p in enumerate(parameters) if p.name in defaults}

    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        for argument, place in places.items():
            if place >= len(args):
                kwargs.setdefault(argument, defaults[argument])
        try:
            return function(value, *args, **kwargs)
        except TypeError:
            check_arguments(signature, name, args, kwargs)
            raise

    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc or function.__doc__
    call.__module__ = function.__module__
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call
