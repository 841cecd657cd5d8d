"""Weight normalisation: a parameter kept as a direction v and a length g, w = g v / ||v||.

The norm is taken over all axes but `dim` (over all of them where it is None). Both are
initialised so that w has the value that the initializer gave v. Salimans and Kingma, "Weight
Normalization", 2016.
"""

from __future__ import annotations

import copy
from typing import Any

from fleetx.static import unique_name
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.param_attr import ParamAttr, WeightNormParamAttr
from fleetx.static.graph.block import Block
from fleetx.static.graph.variable import Variable


def _temporary(block: Block, dtype: Any, hint: str) -> Variable:
    name = unique_name.generate(f"weight_norm.{hint}")
    return block.create_var(name=name, dtype=dtype, persistable=False)


def _append(block: Block, type: str, inputs: dict[str, Any], out: Variable, attrs: Any) -> Variable:
    block.append_op(type=type, inputs=inputs, outputs={"Out": [out]}, attrs=attrs)
    return out


def _append_norm(block: Block, v: Variable, dim: int | None, out: Variable) -> None:
    """Append ops for the Euclidean norm of v over all axes but `dim`, which keep size one."""
    squares = _append(block, "square", {"X": [v]}, _temporary(block, v.dtype, "square"), {})
    axes = [i for i in range(len(v.shape)) if i != dim]
    attrs = {"dim": axes, "keep_dim": True, "reduce_all": dim is None}
    total = _temporary(block, v.dtype, "sum")
    _append(block, "reduce_sum", {"X": [squares]}, total, attrs)
    _append(block, "sqrt", {"X": [total]}, out, {})


def create_weight_norm_parameter(
    helper: LayerHelper, attr: WeightNormParamAttr, shape: list[int], dtype: Any
) -> Variable:
    """Create `<name>_g` and `<name>_v` in both programs; return the weight they make."""
    plain = {k: v for k, v in vars(attr).items() if k != "dim"}
    length_attr, direction_attr = ParamAttr(), ParamAttr()
    for part, suffix in ((length_attr, "_g"), (direction_attr, "_v")):
        vars(part).update(copy.deepcopy(plain))
        part.name = f"{attr.name}{suffix}"
    dim = attr.dim
    length_shape = [n if i == dim else 1 for i, n in enumerate(shape)]
    # The initial length is computed from the initial direction below, not by an initializer.
    length = helper.main_program.global_block().create_parameter(
        shape=length_shape, dtype=dtype, **length_attr._to_kwargs()
    )
    startup = helper.startup_program.global_block()
    startup.create_parameter(shape=length_shape, dtype=dtype, **length_attr._to_kwargs())
    direction = helper._create_in_both(direction_attr, shape, dtype)
    _append_norm(startup, startup.var(direction.name), dim, startup.var(length.name))

    block = helper.main_program.current_block()
    norm = _temporary(block, dtype, "norm")
    _append_norm(block, direction, dim, norm)
    factor = _temporary(block, dtype, "scale")
    _append(block, "elementwise_div", {"X": [length], "Y": [norm]}, factor, {"axis": -1})
    weight = _temporary(block, dtype, "weight")
    _append(block, "elementwise_mul", {"X": [direction], "Y": [factor]}, weight, {"axis": -1})
    WeightNormParamAttr.params_with_weight_norm.append(weight)
    return weight
