"""Layers from declarations: what their arguments accept, and the op they append.

::

    @op_layer("x grid", output="Output", x=WIDE, grid=WIDE)
    def grid_sampler(x: Variable, grid: Variable, name: str | None = None) -> Variable:
        '''Sample images at the points of a grid.'''

Users see the function's signature and docstring; the declaration replaces its body. A body, if
there is one, rejects arguments or returns `changed(paddings=...)`: what the op gets instead of
arguments, and further attributes. `checked` declares only what the arguments of an
ordinary function accept.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar, cast

from fleetx.static.building.adapted import check_arguments
from fleetx.static.building.argument_checks import Rule, rule_of
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.graph.dtypes import convert_dtype
from fleetx.static.graph.variable import Variable

_P = ParamSpec("_P")
_R = TypeVar("_R")
_MISSING = object()

# Parameters with the same meaning in every layer; all others are inputs or attributes.
_COMMON = ("name", "act")


def _dtype_number(value: Any) -> int:
    """Return the number of an element type, as programs store it."""
    return int(convert_dtype(value))


# What an attribute is converted with, by the annotation of its parameter, and what it must be.
_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "Sequence[int]": list,
    "list[int]": list,
    "Sequence[float]": list,
}
_WANTED: dict[Any, str] = {float: "a number", list: "a list", _dtype_number: "an element type"}


def checked(**accepted: Any) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Check arguments, in the order given, before the function runs; see `rule_of`."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        layer = function.__name__
        parameters = inspect.signature(function).parameters
        places = list(parameters)
        rules = [
            (places.index(name), name, _default(parameters[name]), rule_of(accepts))
            for name, accepts in accepted.items()
        ]

        @functools.wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            for place, name, default, rule in rules:
                value = args[place] if place < len(args) else kwargs.get(name, default)
                if value is _MISSING:
                    break  # The call below raises the usual error.
                rule(value, name, layer)
            return function(*args, **kwargs)

        return call

    return decorate


def _default(parameter: inspect.Parameter) -> Any:
    return _MISSING if parameter.default is parameter.empty else parameter.default


def _dtype_of(value: Any) -> Any:
    return (value[0] if isinstance(value, list | tuple) else value).dtype


def _slots(text: str) -> dict[str, str]:
    """Return the parameter of each slot in "X=input gt_boxes"."""
    pairs = [item.rpartition("=")[::2] for item in text.split()]
    return {slot or "".join(w.capitalize() for w in n.split("_")): n for slot, n in pairs}


def changed(**values: Any) -> Any:
    """Return what the op of an `op_layer` gets instead of arguments, and further attributes."""
    return values


class op_layer:
    """Turn a function into a layer of one op; its body runs before, see `changed`.

    A parameter that no argument below mentions is the attribute of its own name, converted as its
    annotation says and left out if it is None. `name` and `act`, if the function has them, are the
    layer's name and its activation.

    Args:
        inputs: the parameters for input slots. The slot of `gt_boxes` is GtBoxes; one of another
            name precedes its parameter: "X=input gt_boxes".
        op: the op's type; the function's name by default.
        layer: the layer's name in the names of variables; the function's by default.
        output: the output slots in the order their variables are created, each with its element
            type if that is not the common one, or the parameter that has it: "Out Indices:int64".
        element_type: the common element type of the outputs: a type, or the name of a parameter
            that gives it. By default it is that of the first input.
        attrs: the parameter for each attribute that is named differently.
        tensors: the input slots of parameters that may be numbers, which are attributes then;
            written as `inputs`.
        returns: the output slots to return, several as a tuple; the first one by default.
            "Index?return_index" is returned if the parameter `return_index` is true.
        written: the parameter with the variable of the first output, which is created if None.
        unused: the parameters that are accepted without effect.
        no_grad: the slots of inputs, and of outputs to create, whose variables get no gradient.
        accepted: the accepted types of parameters, checked in this order; see `rule_of`.
    """

    def __init__(
        self,
        inputs: str,
        *,
        op: str | None = None,
        layer: str | None = None,
        output: str = "Out",
        element_type: Any = None,
        attrs: Mapping[str, str] | None = None,
        tensors: str = "",
        returns: str | None = None,
        written: str = "out",
        unused: str = "",
        no_grad: str = "",
        **accepted: Any,
    ) -> None:
        self.op, self.layer = op, layer
        self.inputs, self.tensors = _slots(inputs), _slots(tensors)
        self.outputs = [tuple(slot.partition(":")[::2]) for slot in output.split()]
        returned = returns.split() if returns else [self.outputs[0][0]]
        self.returns = [tuple(slot.partition("?")[::2]) for slot in returned]
        self.element_type, self.written = element_type, written
        self.attr_names = {parameter: attr for attr, parameter in (attrs or {}).items()}
        self.unused, self.no_grad = unused.split(), frozenset(no_grad.split())
        self.rules: list[tuple[str, Rule]] = [(n, rule_of(a)) for n, a in accepted.items()]

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """Return the layer: a function with the signature and the docstring of the given one."""
        self.name, self.body = function.__name__, cast("Callable[..., Any]", function)
        self.signature = inspect.signature(function)
        parameters = self.signature.parameters
        self.names = list(parameters)
        self.known = parameters.keys()
        self.defaults = {n: p.default for n, p in parameters.items() if p.default is not p.empty}
        used = {*self.inputs.values(), *_COMMON, *self.unused, self.written}
        used.update(switch for _, switch in self.returns)
        if isinstance(self.element_type, str):
            used |= {self.element_type} - self.attr_names.keys()
        self.attrs = [
            (self.attr_names.get(name, name), name, self._conversion(parameter))
            for name, parameter in parameters.items()
            if name not in used
        ]
        named = {*self.inputs.values(), *self.tensors.values(), *self.attr_names}
        unknown = named.union(name for name, _ in self.rules) - {*self.names}
        assert not unknown, f"{self.name} has no parameters {unknown}"

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._append(args, kwargs)

        return call

    def _append(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Check the arguments, append the op, return its outputs."""
        given = {**self.defaults, **dict(zip(self.names, args, strict=False)), **kwargs}
        twice = kwargs.keys() & self.names[: len(args)]
        if twice or len(args) > len(self.names) or given.keys() != self.known:
            check_arguments(self.signature, self.name, args, kwargs)
        for name, rule in self.rules:
            rule(given[name], name, self.name)
        more: dict[str, Any] = self.body(**given) or {}
        given.update(more)
        inputs = {slot: given[name] for slot, name in self.inputs.items()}
        for slot, name in self.tensors.items():
            if isinstance(given[name], Variable):
                inputs[slot] = given.pop(name)
        for slot in self.no_grad & inputs.keys():
            inputs[slot].stop_gradient = True
        others = self.known | {self.element_type}
        attrs = {name: value for name, value in more.items() if name not in others}
        for attr, name, convert in self.attrs:
            value = given.get(name)
            if value is not None or (name in given and self.defaults.get(name, 0) is not None):
                attrs[attr] = value if convert is None else self._converted(value, name, convert)
        own = None if "name" in self.unused else given.get("name")
        helper = LayerHelper(self.layer or self.name, name=own, act=given.get("act"))
        outputs = self._outputs(helper, given)
        helper.append_op(type=self.op or self.name, inputs=inputs, outputs=outputs, attrs=attrs)
        found = [outputs[slot] for slot, switch in self.returns if not switch or given[switch]]
        return tuple(found) if len(found) > 1 else helper.append_activation(found[0])

    def _conversion(self, parameter: inspect.Parameter) -> Callable[[Any], Any] | None:
        if parameter.name == self.element_type:
            return _dtype_number
        return _CONVERSIONS.get(str(parameter.annotation))

    def _converted(self, value: Any, name: str, convert: Callable[[Any], Any]) -> Any:
        try:
            return convert(value)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{name} of {self.name} must be {_WANTED[convert]}, not {value!r}."
            ) from error

    def _outputs(self, helper: LayerHelper, given: dict[str, Any]) -> dict[str, Variable]:
        """Create the variables of the outputs, except for a given first one."""
        common = self.element_type
        if common is None:
            common = _dtype_of(given[next(iter(self.inputs.values()))])
        elif isinstance(common, str) and common in given:
            common = given[common]
        outputs = {}
        for slot, dtype in self.outputs:
            out = given.pop(self.written, None)
            if out is None:
                kind = _dtype_of(given[dtype]) if dtype in given else dtype or common
                out = helper.create_variable_for_type_inference(kind, slot in self.no_grad)
            outputs[slot] = out
        return outputs
