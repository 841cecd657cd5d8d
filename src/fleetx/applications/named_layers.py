"""Static layers with named parameters, and the module's weights they correspond to.

For use inside `StaticModel.build()`: variables are looked up in the default main program.
"""

from __future__ import annotations

import math
from typing import Any

from fleetx.applications.weights import Weight
from fleetx.static import layers
from fleetx.static.building.param_attr import ParamAttr
from fleetx.static.graph.default_programs import default_main_program
from fleetx.static.graph.variable import Variable


def named_fc(name: str, value: Any, size: int, *, initializer: Any = None, **more: Any) -> Variable:
    """Return the output of a linear layer with the parameters `<name>.w_0` and `<name>.b_0`."""
    return layers.fc(
        value,
        size,
        param_attr=ParamAttr(name=f"{name}.w_0", initializer=initializer),
        bias_attr=ParamAttr(name=f"{name}.b_0"),
        **more,
    )


def named_norm(name: str, value: Any, epsilon: float) -> Variable:
    """Return the layer normalisation of `value`, with `<name>_scale` and `<name>_bias`."""
    return layers.layer_norm(
        value,
        begin_norm_axis=len(value.shape) - 1,
        epsilon=epsilon,
        param_attr=ParamAttr(name=f"{name}_scale"),
        bias_attr=ParamAttr(name=f"{name}_bias"),
    )


def split_heads(value: Variable, heads: int) -> Variable:
    """Return [N, heads, T, width / heads] of the tokens' vectors [N, T, width]."""
    shaped = layers.reshape(value, [0, 0, heads, value.shape[-1] // heads])
    return layers.transpose(shaped, [0, 2, 1, 3])


def attend(
    query: Variable, key: Variable, content: Variable, bias: Variable, dropout: float
) -> Variable:
    """Return the vectors that an attention mixes of `content`, all split into heads, as one."""
    heads, width = query.shape[1], query.shape[3]
    scores = layers.matmul(query, key, transpose_y=True, alpha=1 / math.sqrt(width))
    shares = dropped(layers.softmax(layers.elementwise_add(scores, bias)), dropout)
    mixed = layers.transpose(layers.matmul(shares, content), [0, 2, 1, 3])
    return layers.reshape(mixed, [0, 0, heads * width])


def dropped(value: Variable, probability: float) -> Variable:
    """Return `value` with dropout as torch applies it: scaled up in training."""
    if not probability:
        return value
    return layers.dropout(value, probability, dropout_implementation="upscale_in_train")


def weight(name: str, *, transposed: bool = False) -> Weight:
    """Return a variable of the current program as a weight."""
    variable = default_main_program().global_block().var(name)
    return Weight(variable=variable, place=name, transposed=transposed)


def linear_weights(name: str, module: str) -> dict[str, Weight]:
    """Return weight and bias of `named_fc`, keyed as in an `nn.Linear`."""
    return {
        f"{module}.weight": weight(f"{name}.w_0", transposed=True),
        f"{module}.bias": weight(f"{name}.b_0"),
    }


def norm_weights(name: str, module: str) -> dict[str, Weight]:
    """Return scale and bias of `named_norm`, keyed as in an `nn.LayerNorm`."""
    return {f"{module}.weight": weight(f"{name}_scale"), f"{module}.bias": weight(f"{name}_bias")}
