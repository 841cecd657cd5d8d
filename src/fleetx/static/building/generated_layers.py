"""Layers made from op types, and docstrings made from them."""

from __future__ import annotations

import functools
import re
import string
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from fleetx.exports import export_defined
from fleetx.static.building.argument_checks import check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import HALF_TOO, INTS
from fleetx.static.graph.dtypes import VarType, convert_dtype
from fleetx.static.graph.op_registry import OpDef, get_op
from fleetx.static.graph.variable import Variable

_F = TypeVar("_F", bound=Callable[..., Any])
_WHOLE_NUMBERS_TOO = ("abs", "exp", "square")


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def generate_layer_fn(op_type: str) -> Callable[..., Variable]:
    """Return a layer that appends one op: inputs by position or name, attributes by name."""
    definition = get_op(op_type)
    out, *others = definition.outputs
    if out.many or any(slot.many for slot in others):
        raise ValueError(f"The outputs of {op_type} are lists: write its layer by hand.")

    def layer(*args: Any, **kwargs: Any) -> Variable:
        values, inputs = list(args), {}
        for slot in definition.inputs:
            value = kwargs.pop(_snake(slot.name), None)
            if value is None and values:
                value = values.pop(0)
            if value is not None:
                inputs[slot.name] = list(value) if isinstance(value, list | tuple) else [value]
        found = [each for value in inputs.values() for each in value]
        helper = LayerHelper(op_type, input=found, **_layer_arguments(kwargs))
        dtype = helper.input_dtype() or convert_dtype(kwargs.get("dtype") or VarType.FP32)
        given = kwargs.pop(_snake(out.name), None)
        outputs = {out.name: [given or helper.create_variable_for_type_inference(dtype)]}
        for slot in others:
            if not slot.optional:
                outputs[slot.name] = [helper.create_variable_for_type_inference(dtype)]
        helper.append_op(type=op_type, inputs=inputs, outputs=outputs, attrs=kwargs)
        return helper.append_activation(outputs[out.name][0])

    layer.__name__ = op_type
    layer.__doc__ = _description(definition)
    return layer


def _layer_arguments(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {key: kwargs.pop(key) for key in ("name", "act") if key in kwargs}


def generate_activation_fn(op_type: str) -> Callable[..., Variable]:
    """Return a layer from `x` to a variable of the same type, such as relu."""
    definition = get_op(op_type)
    accepted = (*INTS, *HALF_TOO) if op_type in _WHOLE_NUMBERS_TOO else HALF_TOO

    def layer(x: Variable, name: str | None = None) -> Variable:
        check_variable_and_dtype(x, "x", accepted, op_type)
        return LayerHelper(op_type, name=name).output_of(op_type, {"X": x}, dtype=x.dtype)

    layer.__name__ = op_type
    layer.__doc__ = _description(definition)
    return layer


def deprecated(func_or_class: _F) -> _F:
    """Make a function warn when it is called."""

    @functools.wraps(func_or_class)
    def call(*args: Any, **kwargs: Any) -> Any:
        text = f"Call to deprecated function {func_or_class.__name__}."
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return func_or_class(*args, **kwargs)

    return call  # type: ignore[return-value] # has the signature of what it wraps


def autodoc(comment: str = "") -> Callable[[_F], _F]:
    """Return a decorator that describes a layer by the op of its name."""

    def decorate(function: _F) -> _F:
        function.__doc__ = _description(get_op(function.__name__)) + comment
        return function

    return decorate


def templatedoc(op_type: str | None = None) -> Callable[[_F], _F]:
    """Return a decorator that fills in ${comment}, ${x_comment} and ${x_type} of a docstring."""

    def decorate(function: _F) -> _F:
        definition = get_op(op_type or function.__name__)
        words = {"comment": _comment(definition).rstrip(".")}
        for slot in (*definition.inputs, *definition.outputs):
            words[f"{_snake(slot.name)}_comment"] = f"{slot.name} of {definition.type}"
            words[f"{_snake(slot.name)}_type"] = "Variable"
        for name, attr in definition.attrs.items():
            words[f"{_snake(name)}_comment"] = f"the attribute {name}"
            words[f"{_snake(name)}_type"] = str(attr.kind)
        function.__doc__ = string.Template(function.__doc__ or "").safe_substitute(words)
        return function

    return decorate


def _comment(definition: OpDef) -> str:
    return (definition.fn.__doc__ or f"The op {definition.type}.").strip()


def _description(definition: OpDef) -> str:
    lines = [_comment(definition), "", "Args:"]
    lines += [f"    {_snake(slot.name)}: the input {slot.name}." for slot in definition.inputs]
    lines += [f"    {name} ({attr.kind}): an attribute." for name, attr in definition.attrs.items()]
    return "\n".join(lines) + "\n"


export_defined(globals())
