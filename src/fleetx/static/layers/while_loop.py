"""Loops: a block of ops that runs as long as a condition variable is true."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fleetx.static.building.argument_checks import check_type
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.control_flow import BlockGuard, outer_names, parent_of
from fleetx.static.layers.structure import assert_same_structure, map_structure
from fleetx.static.layers.tensor import assign

__all__ = ["While", "while_loop"]


def _is_scalar(var: Variable) -> bool:
    return math.prod(abs(d) for d in var.shape) == 1


class While:
    """A block that runs as long as a condition variable, which it updates itself, is true."""

    BEFORE_WHILE_BLOCK = 0
    IN_WHILE_BLOCK = 1
    AFTER_WHILE_BLOCK = 2

    def __init__(self, cond: Variable, is_test: bool = False, name: str | None = None) -> None:
        self.helper = LayerHelper("while", name=name)
        self.status = While.BEFORE_WHILE_BLOCK
        if not isinstance(cond, Variable):
            raise TypeError(f"cond of While must be a Variable, not {type(cond).__name__}.")
        if cond.dtype != VarType.BOOL:
            raise TypeError(f"cond of While must be a boolean Variable, not {cond.dtype}.")
        if not _is_scalar(cond):
            raise TypeError(f"cond of While must hold one value, but has shape {cond.shape}.")
        self.cond_var = cond
        self.is_test = is_test

    def block(self) -> WhileGuard:
        """Return the context manager in which the body is built."""
        return WhileGuard(self)

    def _complete(self) -> None:
        body = self.helper.main_program.current_block()
        parent = parent_of(body)
        reads, writes = outer_names(body, written=[self.cond_var.name])
        scopes = parent.create_var(type=VarType.STEP_SCOPES)
        parent.append_op(
            type="while",
            inputs={"X": reads, "Condition": [self.cond_var]},
            outputs={"Out": writes, "StepScopes": [scopes]},
            attrs={"sub_block": body, "is_test": self.is_test},
        )


class WhileGuard(BlockGuard):
    """The `with` around the body of a While."""

    def __init__(self, while_op: While) -> None:
        check_type(while_op, "while_op", While, "WhileGuard")
        super().__init__(while_op.helper.main_program)
        self.while_op = while_op

    def __enter__(self) -> None:
        self.while_op.status = While.IN_WHILE_BLOCK
        super().__enter__()

    def complete(self) -> None:
        """Append the while op."""
        self.while_op.status = While.AFTER_WHILE_BLOCK
        self.while_op._complete()


def while_loop(
    cond: Callable[..., Variable],
    body: Callable[..., Any],
    loop_vars: Any,
    is_test: bool = False,
    name: str | None = None,
) -> Any:
    """Call `body` on the loop variables while `cond` of them is true; return their last values.

    Args:
        cond: takes the loop variables, returns a boolean Variable with one value.
        body: takes the loop variables, returns equally many new ones.
        loop_vars: a list or tuple of Variables (or nested ones).
        is_test: set if no gradient is needed.
    """
    LayerHelper("while_loop", name=name)
    for what, fn in (("cond", cond), ("body", body)):
        if not callable(fn):
            raise TypeError(f"{what} in while_loop should be callable, not {type(fn).__name__}.")
    if not isinstance(loop_vars, list | tuple):
        raise TypeError(
            f"loop_vars in while_loop should be a list or tuple, not {type(loop_vars).__name__}."
        )
    if not loop_vars:
        raise ValueError("loop_vars in while_loop should not be empty.")
    condition = cond(*loop_vars)
    if not isinstance(condition, Variable):
        raise TypeError(
            f"cond in while_loop should return a Variable, not {type(condition).__name__}."
        )
    loop = While(condition, is_test, name)
    # The body may change its lists and dicts in place; those of the loop must not change.
    given = [map_structure(lambda var: var, item) for item in loop_vars]
    with loop.block():
        result = body(*given)
        if not isinstance(result, list | tuple):
            result = [result]
        try:
            assert_same_structure(list(result), list(loop_vars), check_types=False)
        except ValueError as error:
            raise ValueError(
                "body in while_loop should return the same arity (length and structure) as "
                f"loop_vars: {error}"
            ) from error
        again = cond(*result)
        map_structure(assign, list(result), list(loop_vars))
        assign(again, condition)
    return loop_vars
