"""Layer: the base of the classes that hold parameters and build ops when they are called.

Layers have the names and methods of Paddle 2's `paddle.nn.Layer`, but build a program: a
parameter is created in the default main and startup programs; `forward` appends ops. Parameters are
named after the layer (`linear_0.w_0`); `state_dict` names them by their path (`fc.weight`).
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np

from fleetx.static import unique_name
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.param_attr import ParamAttr
from fleetx.static.graph.variable import Parameter, Variable
from fleetx.static.run.scope import global_scope
from fleetx.static.tensor.common import get_default_dtype

_Self = TypeVar("_Self", bound="Layer")


def _snake_case(name: str) -> str:
    """Return a class's name as parameters use it: BatchNorm2D becomes batch_norm2d."""
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


class HookRemoveHelper:
    """Handle of a registered hook: `remove()` removes it."""

    def __init__(self, hooks: dict[int, Any]) -> None:
        self._hooks = hooks
        self._id = max(hooks, default=-1) + 1

    def remove(self) -> None:
        """Remove the hook."""
        self._hooks.pop(self._id, None)


class Layer:
    """A part of a network; subclasses create parameters in `__init__` and ops in `forward`.

    Without a `dtype`, parameters have the type set by `set_default_dtype`.
    """

    def __init__(self, name_scope: str | None = None, dtype: Any = None) -> None:
        self.training = True
        self._dtype = get_default_dtype() if dtype is None else dtype
        self._full_name = unique_name.generate(name_scope or _snake_case(type(self).__name__))
        self._buffers: OrderedDict[str, Any] = OrderedDict()
        self._non_persistable_buffers: set[str] = set()
        self._sub_layers: OrderedDict[str, Any] = OrderedDict()
        self._pre_hooks: dict[int, Callable[..., Any]] = {}
        self._post_hooks: dict[int, Callable[..., Any]] = {}
        # Last: from here on, __setattr__ registers parameters, layers and buffers.
        self._parameters: OrderedDict[str, Any] = OrderedDict()

    # -- calling -------------------------------------------------------------------------------
    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Append the layer's ops and return its outputs."""
        raise NotImplementedError(f"{type(self).__name__} does not define forward().")

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        """Run the hooks and `forward`."""
        for hook in list(self._pre_hooks.values()):
            changed = hook(self, inputs)
            if changed is not None:
                inputs = changed if isinstance(changed, tuple) else (changed,)
        outputs = self.forward(*inputs, **kwargs)
        for hook in list(self._post_hooks.values()):
            changed = hook(self, inputs, outputs)
            outputs = outputs if changed is None else changed
        return outputs

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> HookRemoveHelper:
        """Call `hook(layer, inputs)` before `forward`; what it returns replaces the inputs."""
        helper = HookRemoveHelper(self._pre_hooks)
        self._pre_hooks[helper._id] = hook
        return helper

    def register_forward_post_hook(self, hook: Callable[..., Any]) -> HookRemoveHelper:
        """Call `hook(layer, inputs, outputs)` after `forward`; its result replaces the outputs."""
        helper = HookRemoveHelper(self._post_hooks)
        self._post_hooks[helper._id] = hook
        return helper

    def train(self: _Self) -> _Self:
        """Build for training: dropout is active, batch norm uses batch statistics."""
        return self._set_mode(True)

    def eval(self: _Self) -> _Self:
        """Build for inference."""
        return self._set_mode(False)

    def _set_mode(self: _Self, training: bool) -> _Self:
        for layer in self.sublayers(include_self=True):
            layer.training = training
        return self

    # -- parameters ----------------------------------------------------------------------------
    def full_name(self) -> str:
        """Return the layer's unique name, the prefix of its parameters' names."""
        return self._full_name

    def create_parameter(
        self,
        shape: Iterable[int],
        attr: Any = None,
        dtype: Any = None,
        is_bias: bool = False,
        default_initializer: Any = None,
    ) -> Any:
        """Create a parameter in both default programs; return None if `attr` is False."""
        helper = LayerHelper("layer", name=self._full_name)
        return helper.create_parameter(
            attr=ParamAttr._to_attr(attr),
            shape=list(shape),
            dtype=dtype or self._dtype,
            is_bias=is_bias,
            default_initializer=default_initializer,
        )

    def create_tensor(
        self, name: str | None = None, persistable: bool | None = None, dtype: Any = None
    ) -> Variable:
        """Create a variable of the program that is not a parameter."""
        helper = LayerHelper("layer", name=self._full_name)
        name = unique_name.generate(f"{self._full_name}.{name or '_generated_var'}")
        return helper.create_global_variable(
            name=name, persistable=bool(persistable), dtype=dtype or self._dtype
        )

    create_variable = create_tensor

    def add_parameter(self, name: str, parameter: Any) -> Any:
        """Register a parameter under a name."""
        if parameter is not None and not isinstance(parameter, Parameter):
            raise TypeError(
                f"parameter {name!r} must be a Parameter, not {type(parameter).__name__}."
            )
        self._parameters[name] = parameter
        return parameter

    def register_buffer(self, name: str, tensor: Any, persistable: bool = True) -> None:
        """Register a buffer: a Variable that is not a parameter."""
        if tensor is not None and not isinstance(tensor, Variable):
            raise TypeError(f"buffer {name!r} must be a Variable, not {type(tensor).__name__}.")
        self._buffers[name] = tensor
        if not persistable:
            self._non_persistable_buffers.add(name)

    def parameters(self, include_sublayers: bool = True) -> list[Any]:
        """Return the parameters of this layer and, by default, of those inside it."""
        return [p for _, p in self.named_parameters(include_sublayers=include_sublayers)]

    def named_parameters(
        self, prefix: str = "", include_sublayers: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """Iterate over (path, parameter), each parameter once."""
        yield from self._named("_parameters", prefix, include_sublayers)

    def buffers(self, include_sublayers: bool = True) -> list[Any]:
        """Return the buffers of this layer and, by default, of those inside it."""
        return [b for _, b in self.named_buffers(include_sublayers=include_sublayers)]

    def named_buffers(
        self, prefix: str = "", include_sublayers: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """Iterate over (path, buffer), each buffer once."""
        yield from self._named("_buffers", prefix, include_sublayers)

    def _named(self, kind: str, prefix: str, deep: bool) -> Iterator[tuple[str, Any]]:
        layers = self.named_sublayers(prefix, include_self=True) if deep else [(prefix, self)]
        seen: set[int] = set()
        for place, layer in layers:
            for name, value in getattr(layer, kind).items():
                if value is not None and id(value) not in seen:
                    seen.add(id(value))
                    yield (f"{place}.{name}" if place else name), value

    # -- sublayers -----------------------------------------------------------------------------
    def add_sublayer(self, name: str, sublayer: Any) -> Any:
        """Register a sublayer under a name."""
        if sublayer is not None and not isinstance(sublayer, Layer):
            raise TypeError(f"sublayer {name!r} must be a Layer, not {type(sublayer).__name__}.")
        self._sub_layers[str(name)] = sublayer
        return sublayer

    def sublayers(self, include_self: bool = False) -> list[Layer]:
        """Return the layers inside this one, at any depth."""
        return [layer for _, layer in self.named_sublayers(include_self=include_self)]

    def named_sublayers(
        self, prefix: str = "", include_self: bool = False, layers_set: set[Any] | None = None
    ) -> Iterator[tuple[str, Layer]]:
        """Iterate over (path, layer) of the layers inside this one, each once."""
        seen = set() if layers_set is None else layers_set
        if include_self and self not in seen:
            seen.add(self)
            yield prefix, self
        for name, layer in self._sub_layers.items():
            if layer is not None and layer not in seen:
                place = f"{prefix}.{name}" if prefix else name
                yield from layer.named_sublayers(place, include_self=True, layers_set=seen)

    def children(self) -> Iterator[Layer]:
        """Iterate over the layers directly inside this one."""
        yield from (layer for _, layer in self.named_children())

    def named_children(self) -> Iterator[tuple[str, Layer]]:
        """Iterate over (name, layer) of the layers directly inside this one."""
        yield from ((n, layer) for n, layer in self._sub_layers.items() if layer is not None)

    def apply(self: _Self, fn: Callable[[Layer], Any]) -> _Self:
        """Call `fn` on every layer inside this one and on this one."""
        for layer in self.children():
            layer.apply(fn)
        fn(self)
        return self

    # -- state ---------------------------------------------------------------------------------
    def state_dict(
        self,
        destination: Any = None,
        include_sublayers: bool = True,
        structured_name_prefix: str = "",
        use_hook: bool = True,
    ) -> Any:
        """Return the parameters and persistable buffers by their path in the tree of layers."""
        found = OrderedDict() if destination is None else destination
        prefix = structured_name_prefix.rstrip(".")
        layers: Iterable[tuple[str, Layer]] = [(prefix, self)]
        if include_sublayers:
            layers = self.named_sublayers(prefix, include_self=True)
        for place, layer in layers:
            kept = {
                n: b for n, b in layer._buffers.items() if n not in layer._non_persistable_buffers
            }
            for name, value in [*layer._parameters.items(), *kept.items()]:
                if value is not None:
                    found[f"{place}.{name}" if place else name] = value
        return found

    def set_state_dict(
        self, state_dict: dict[str, Any], use_structured_name: bool = True
    ) -> tuple[list[str], list[str]]:
        """Set values (arrays or tensors) in the current scope; return missing and unexpected names.

        Run the startup program first; otherwise it overwrites these values.
        """
        missing, used = [], set()
        for place, variable in self.state_dict().items():
            key = place if use_structured_name else variable.name
            if key not in state_dict:
                missing.append(key)
                continue
            used.add(key)
            value = np.asarray(state_dict[key])
            if tuple(value.shape) != tuple(variable.shape):
                raise ValueError(
                    f"{key!r} has shape {tuple(variable.shape)}, but its value has {value.shape}."
                )
            global_scope().var(variable.name).get_tensor().set(value)
        return missing, [k for k in state_dict if k not in used]

    set_dict = set_state_dict
    load_dict = set_state_dict

    # -- attributes ----------------------------------------------------------------------------
    def __setattr__(self, name: str, value: Any) -> None:
        """Register parameters, layers and buffers; set other attributes."""
        groups = self.__dict__
        if "_parameters" not in groups:
            if isinstance(value, Parameter | Layer):
                raise ValueError(
                    f"call super().__init__() before setting {name!r} of {type(self).__name__}."
                )
            object.__setattr__(self, name, value)
            return
        kinds: dict[str, Any] = {"_parameters": Parameter, "_sub_layers": Layer, "_buffers": ()}
        home = next((g for g, kind in kinds.items() if isinstance(value, kind)), None)
        if home is None:
            home = next(
                (g for g in kinds if name in groups[g] and (value is None or g == "_buffers")), None
            )
        for group in kinds:
            if group != home:
                groups[group].pop(name, None)
        if home is None:
            object.__setattr__(self, name, value)
        else:
            groups.pop(name, None)
            groups[home][name] = value

    def __getattr__(self, name: str) -> Any:
        """Find parameters, layers and buffers by name."""
        for group in ("_parameters", "_sub_layers", "_buffers"):
            values = self.__dict__.get(group, {})
            if name in values:
                return values[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}.")

    def __delattr__(self, name: str) -> None:
        """Remove a parameter, layer, buffer or plain attribute."""
        for group in ("_parameters", "_sub_layers", "_buffers"):
            if name in self.__dict__.get(group, {}):
                del self.__dict__[group][name]
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        """List all attributes."""
        groups = (self._parameters, self._sub_layers, self._buffers)
        return sorted({*super().__dir__(), *(n for g in groups for n in g)})

    def extra_repr(self) -> str:
        """Return the settings shown by `repr`."""
        return ""

    def __repr__(self) -> str:
        """Show the tree of layers."""
        lines = [self.extra_repr()] if self.extra_repr() else []
        for name, layer in self._sub_layers.items():
            lines.append(f"({name}): " + repr(layer).replace("\n", "\n  "))
        if not self._sub_layers:
            return f"{type(self).__name__}({', '.join(lines)})"
        return f"{type(self).__name__}(\n  " + "\n  ".join(lines) + "\n)"
