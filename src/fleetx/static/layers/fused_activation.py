"""The layer of Fluid's `contrib` for an elementwise operation and an activation as one op."""

from __future__ import annotations

from fleetx.exports import export_defined
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.graph.variable import Variable


def fused_elemwise_activation(
    x: Variable,
    y: Variable,
    functor_list: list[str] | str,
    axis: int = -1,
    scale: float = 0.0,
    save_intermediate_out: bool = True,
) -> Variable:
    """Return binary(x, unary(y)) or unary(binary(x, y)).

    Args:
        x: the left operand.
        y: the right operand.
        functor_list: "elementwise_add" or "elementwise_mul", and "scale", "relu", "tanh" or
            "sigmoid", the outer one first; a list, or a str with a comma.
        axis: where the dimensions of `y` begin among those of `x`; -1 for the last ones.
        scale: the factor of "scale".
        save_intermediate_out: whether the inner result is an output of the op.
    """
    functors = functor_list.split(",") if isinstance(functor_list, str) else functor_list
    if not isinstance(functors, list) or len(functors) != 2:
        raise ValueError(f"functor_list has two names, not {functor_list!r}.")
    helper = LayerHelper("fused_elemwise_activation")
    attrs = {
        "axis": axis,
        "scale": scale,
        "save_intermediate_out": save_intermediate_out,
        "functor_list": functors,
    }
    out, _ = helper.outputs_of(
        "fused_elemwise_activation", {"X": x, "Y": y}, attrs, Out=x.dtype, IntermediateOut=x.dtype
    )
    return out


export_defined(globals())
