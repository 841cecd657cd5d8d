"""Print and Assert: show and check values while a program runs."""

from __future__ import annotations

from collections.abc import Sequence

from fleetx.static.building.argument_checks import check_choice, check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import one_op
from fleetx.static.building.op_layer import checked
from fleetx.static.graph.variable import Variable

__all__ = ["Assert", "Print"]


def Print(
    input: Variable,
    first_n: int = -1,
    message: str | None = None,
    summarize: int = 20,
    print_tensor_name: bool = True,
    print_tensor_type: bool = True,
    print_tensor_shape: bool = True,
    print_tensor_lod: bool = True,
    print_phase: str = "both",
) -> Variable:
    """Print a value in every run and return it; what follows must use the returned Variable.

    Args:
        input: the value.
        first_n: the number of runs to print in; all if it is not positive.
        message: a line to print first.
        summarize: the number of elements to print; all if negative.
        print_tensor_name: whether to print the variable's name.
        print_tensor_type: whether to print the element type.
        print_tensor_shape: whether to print the shape.
        print_tensor_lod: whether to print the offsets of sequences.
        print_phase: "forward" (the value), "backward" (its gradient) or "both".
    """
    check_variable_and_dtype(
        input, "input", ["float32", "float64", "int32", "int64", "bool"], "fluid.layers.Print"
    )
    check_choice(print_phase.lower(), "print_phase", ("forward", "backward", "both"), "Print")
    return one_op(
        "print",
        {"In": [input]},
        {
            "first_n": first_n,
            "summarize": summarize,
            "message": message or "",
            "print_tensor_name": print_tensor_name,
            "print_tensor_type": print_tensor_type,
            "print_tensor_shape": print_tensor_shape,
            "print_tensor_lod": print_tensor_lod,
            "print_phase": print_phase.upper(),
        },
        dtype=input.dtype,
        layer=f"print_{input.name}",
    )


@checked(cond=("bool",), data=list | tuple | None, summarize=int)
def Assert(
    cond: Variable,
    data: Sequence[Variable] | None = None,
    summarize: int = 20,
    name: str | None = None,
) -> None:
    """Raise an error that shows `data` if `cond` is not true in a run.

    Args:
        cond: a boolean Variable.
        data: values to show.
        summarize: the number of elements of each to show; all if negative.
    """
    helper = LayerHelper(name or f"assert_{cond.name}")
    helper.append_op(
        type="assert",
        inputs={"Cond": cond, "Data": list(data or [])},
        attrs={"summarize": summarize},
    )
