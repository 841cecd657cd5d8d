"""The layer `py_func`: a Python function as part of a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fleetx.static.building.argument_checks import check_type
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.graph.variable import Variable
from fleetx.static.ops.py_func import register_function

__all__ = ["py_func"]


def _as_list(value: Any) -> list[Variable]:
    if value is None:
        return []
    return [value] if isinstance(value, Variable) else list(value)


def py_func(
    func: Callable[..., Any],
    x: Any,
    out: Any,
    backward_func: Callable[..., Any] | None = None,
    skip_vars_in_backward_input: Any = None,
) -> Any:
    """Call `func` with the values of x in every run, and store what it returns in `out`.

    `backward_func` takes the inputs, the outputs and the gradients of the outputs, except those in
    `skip_vars_in_backward_input`, and returns the gradients of the inputs.
    """
    helper = LayerHelper("py_func")
    check_type(x, "X", (list, tuple, Variable, type(None)), "py_func")
    check_type(out, "Out", (list, tuple, Variable, type(None)), "py_func")
    inputs, outputs = _as_list(x), _as_list(out)
    for var in outputs:
        if len(var.shape) == 0:
            raise ValueError(f"out of py_func needs a shape, but {var.name!r} has none.")
    names = [v.name for v in (*inputs, *outputs)]
    skipped = _as_list(skip_vars_in_backward_input) if backward_func is not None else []
    for var in skipped:
        if var.name not in names:
            raise ValueError(f"{var.name!r} is neither an input nor an output of py_func.")
    skip = [v.name for v in skipped]
    helper.append_op(
        type="py_func",
        inputs={"X": inputs},
        outputs={"Out": outputs},
        attrs={
            "forward_callable_id": register_function(func),
            "backward_callable_id": -1
            if backward_func is None
            else register_function(backward_func),
            "backward_skip_vars": skip,
            "backward_skip_positions": [i for i, name in enumerate(names) if name in skip],
        },
    )
    return out
