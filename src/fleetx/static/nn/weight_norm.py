"""Weight normalisation of an existing layer: its weight becomes a length and a direction.

`weight` is replaced by the parameters `weight_g` and `weight_v`, and computed from them before each
forward call: w = g v / ||v||. The startup program initialises both from the initial weight.
"""

from __future__ import annotations

from typing import Any

from fleetx.static import layers
from fleetx.static.graph.default_programs import default_startup_program, program_guard
from fleetx.static.graph.variable import Parameter, Variable
from fleetx.static.nn.layer import Layer

__all__ = ["remove_weight_norm", "weight_norm"]


def _norm(v: Variable, dim: int) -> Variable:
    """Return the norms over all axes but `dim`, as a vector; of everything where it is -1."""
    axes = [axis for axis in range(len(v.shape)) if axis != dim]
    total = layers.reduce_sum(layers.square(v), dim=None if dim == -1 else axes)
    return layers.reshape(layers.sqrt(total), [1 if dim == -1 else v.shape[dim]])


class _Normalized:
    """The hook that computes the weight before a forward call."""

    def __init__(self, name: str, dim: int, original: Parameter) -> None:
        self.name, self.dim, self.original = name, dim, original

    def __call__(self, layer: Layer, inputs: Any) -> None:
        v, g = getattr(layer, f"{self.name}_v"), getattr(layer, f"{self.name}_g")
        factor = layers.elementwise_div(g, _norm(v, self.dim))
        weight = layers.elementwise_mul(v, factor, axis=self.dim)
        setattr(layer, self.name, weight)


def _hook_of(layer: Layer, name: str) -> int | None:
    """Return the id of the hook that computes a weight, if there is one."""
    hooks = layer._pre_hooks.items()
    return next((n for n, h in hooks if isinstance(h, _Normalized) and h.name == name), None)


def weight_norm(layer: Layer, name: str = "weight", dim: int | None = 0) -> Layer:
    """Store a parameter of a layer as a length per slice along `dim`, and a direction.

    With `dim` None (or -1) there is one length for the whole parameter.
    """
    weight = dict(layer.named_parameters(include_sublayers=False)).get(name)
    if weight is None:
        if _hook_of(layer, name) is not None:
            raise RuntimeError(f"weight_norm has already been applied to {name!r} of this layer.")
        raise ValueError(f"{type(layer).__name__} has no parameter {name!r} for weight_norm.")
    rank = len(weight.shape)
    if dim is not None and not -rank <= dim < rank:
        raise ValueError(f"dim of weight_norm must be within [-{rank}, {rank}), but is {dim}.")
    place = -1 if dim in (None, -1) else dim % rank
    delattr(layer, name)
    lengths = [1 if place == -1 else weight.shape[place]]
    v = layer.create_parameter(weight.shape, dtype=weight.dtype)
    g = layer.create_parameter(lengths, dtype=weight.dtype)
    layer.add_parameter(f"{name}_v", v)
    layer.add_parameter(f"{name}_g", g)
    startup = default_startup_program()
    block = startup.global_block()
    with program_guard(startup, startup):
        layers.assign(block.var(weight.name), block.var(v.name))
        layers.assign(_norm(block.var(weight.name), place), block.var(g.name))
    hook = _Normalized(name, place, weight)
    hook(layer, ())
    layer.register_forward_pre_hook(hook)
    return layer


def remove_weight_norm(layer: Layer, name: str = "weight") -> Layer:
    """Restore the parameter that `weight_norm` replaced."""
    number = _hook_of(layer, name)
    if number is None:
        raise ValueError(f"weight_norm was not applied to {name!r} of {type(layer).__name__}.")
    hook: Any = layer._pre_hooks.pop(number)
    for part in (name, f"{name}_v", f"{name}_g"):
        delattr(layer, part)
    setattr(layer, name, hook.original)
    return layer
