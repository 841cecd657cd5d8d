"""Functions of one generation of the API made from those of another.

`layers.trace(input, offset, dim1, dim2, out, name)` of 1.x is `tensor.trace` of 2.x::

    trace = adapted(layers.trace, "x -> input, offset, axis1 -> dim1, axis2 -> dim2, name")

The second argument lists the new parameters in their order, each with the name of the old one if
that differs. The result is a function with a name, a docstring and a signature of its own.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeVar

_R = TypeVar("_R")

# Several functions are made from one, and its signature takes longer than all the rest.
signature_of = functools.cache(inspect.signature)


def adapted(
    function: Callable[..., _R],
    parameters: str,
    *,
    name: str | None = None,
    doc: str | None = None,
    fixed: dict[str, Any] | None = None,
    **defaults: Any,
) -> Callable[..., _R]:
    """Return the function with other parameters.

    Args:
        function: the function to call.
        parameters: the new parameters, "new -> old" or "same"; one that the function does not have
            is accepted without effect. The function's other parameters keep their defaults.
        name: the new function's name, if it differs.
        doc: the new function's docstring, if it differs.
        fixed: arguments of the function that are always the same.
        defaults: other default values, by new name.
    """
    public = function.__name__ if name is None else name
    known = signature_of(function).parameters
    pairs = [item.strip().partition(" -> ")[::2] for item in parameters.split(",")]
    old_names = {new: old or new for new, old in pairs}
    listed = [_parameter(new, known.get(old), defaults) for new, old in old_names.items()]
    signature = signature_of(function).replace(parameters=listed)
    positions = list(old_names)
    passed_on = {new: old for new, old in old_names.items() if old in known}
    always = {old_names[new]: default for new, default in defaults.items() if new in passed_on}
    always |= fixed or {}

    def call(*args: Any, **kwargs: Any) -> _R:
        given = dict(zip(positions, args, strict=False))
        wrong = len(args) > len(positions) or not given.keys().isdisjoint(kwargs)
        given.update(kwargs)
        if wrong or not given.keys() <= old_names.keys():
            check_arguments(signature, public, args, kwargs)
        named = {passed_on[new]: value for new, value in given.items() if new in passed_on}
        try:
            return function(**{**always, **named})
        except TypeError:
            check_arguments(signature, public, args, kwargs)
            raise

    call.__name__ = call.__qualname__ = public
    call.__doc__ = doc or function.__doc__
    # Where the function is to be found: in the module that calls this one.
    call.__module__ = sys._getframe(1).f_globals["__name__"]
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def _parameter(
    new: str, old: inspect.Parameter | None, defaults: dict[str, Any]
) -> inspect.Parameter:
    if old is None:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        old = inspect.Parameter(new, kind, annotation="str | None", default=None)
    if new == old.name and new not in defaults:
        return old
    return old.replace(name=new, default=defaults.get(new, old.default))


def check_arguments(
    signature: inspect.Signature, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Raise a TypeError under the public name if arguments do not fit its signature."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{name}() {error}.") from None
