"""Branches: blocks of ops that run if a condition variable is true; loops are in `while_loop.py`.

A block is built inside a `with`; when it ends, its op is appended to the block around it, listing
the outer variables that the block reads and writes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from fleetx.static.building.argument_checks import check_type, check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.op_layer import checked
from fleetx.static.graph.block import Block
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.compare import equal
from fleetx.static.layers.creation import fill_constant
from fleetx.static.layers.math import logical_not
from fleetx.static.layers.structure import assert_same_structure, map_structure
from fleetx.static.layers.tensor import assign, cast

__all__ = ["case", "cond", "switch_case"]


class BlockGuard:
    """Context manager in which layers append to a new inner block."""

    def __init__(self, main_program: Program) -> None:
        if not isinstance(main_program, Program):
            raise TypeError(
                f"BlockGuard takes a Program, not {type(main_program).__name__}: {main_program!r}."
            )
        self.main_program = main_program

    def complete(self) -> None:
        """Append the op that runs the block; called with the inner block still current."""

    def __enter__(self) -> None:
        self.main_program.create_block()

    def __exit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        try:
            if exc_type is None:
                self.complete()
        finally:
            self.main_program.rollback()


def parent_of(block: Block) -> Block:
    """Return the block around an inner block."""
    parent = block.parent
    if parent is None:
        raise RuntimeError("this can only be used inside a control flow block.")
    return parent


def outer_names(block: Block, written: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """Return the outer variables that a block reads before it writes them, and those it writes.

    `written` are names that count as written before the block begins.
    """
    reads: dict[str, None] = {}
    writes: dict[str, None] = dict.fromkeys(written)
    for op in block.ops:
        for slot in op.input_names:
            if slot in op.output_names:
                continue  # the old value of an output, which is an input already
            for name in op.input(slot):
                if name not in writes and not block.has_var(name):
                    reads[name] = None
        writes.update(dict.fromkeys(op.output_arg_names))
    parent = parent_of(block)
    return list(reads), [n for n in writes if parent.find_var(n) is not None]


# -- branches ----------------------------------------------------------------------------------
class ConditionalBlock:
    """A block that runs if its condition is true."""

    def __init__(
        self, inputs: Sequence[Variable], is_scalar_condition: bool = False, name: str | None = None
    ) -> None:
        for item in inputs:
            check_type(item, "inputs", Variable, "ConditionalBlock")
        self.inputs = list(inputs)
        self.is_scalar_condition = is_scalar_condition
        self.helper = LayerHelper("conditional_block", name=name)

    def block(self) -> ConditionalBlockGuard:
        """Return the context manager in which the block is built."""
        return ConditionalBlockGuard(self)

    def complete(self) -> None:
        """Append the op to the block around the current one."""
        inside = self.helper.main_program.current_block()
        parent = parent_of(inside)
        reads, writes = outer_names(inside)
        scope = parent.create_var(type=VarType.STEP_SCOPES)
        parent.append_op(
            type="conditional_block",
            inputs={"Cond": self.inputs, "Input": reads},
            outputs={"Out": writes, "Scope": [scope]},
            attrs={"sub_block": inside, "is_scalar_condition": self.is_scalar_condition},
        )


class ConditionalBlockGuard(BlockGuard):
    """The `with` around the ops of a ConditionalBlock."""

    def __init__(self, block: ConditionalBlock) -> None:
        check_type(block, "block", ConditionalBlock, "ConditionalBlockGuard")
        super().__init__(block.helper.main_program)
        self.block = block

    def complete(self) -> None:
        """Append the conditional_block op."""
        self.block.complete()


@checked(input=Variable, mask=("int32",), outputs=list | tuple)
def select_output(input: Variable, outputs: Sequence[Variable], mask: Variable) -> Any:
    """Copy `input` to the output whose index is in `mask`."""
    LayerHelper("select_output").append_op(
        type="select_output", inputs={"X": input, "Mask": mask}, outputs={"Out": outputs}
    )
    return outputs


@checked(inputs=list | tuple, mask=("int32",))
def select_input(inputs: Sequence[Variable], mask: Variable) -> Variable:
    """Return the input whose index is in `mask`; the others need no value."""
    helper = LayerHelper("select_input")
    first = inputs[0]
    out = helper.create_variable(dtype=first.dtype, shape=first._shape, type=first.type)
    helper.append_op(type="select_input", inputs={"X": inputs, "Mask": mask}, outputs={"Out": out})
    return out


def _copy_to_parent(var: Variable | None, helper: LayerHelper) -> Variable | None:
    if var is None:
        return None
    parent = parent_of(helper.main_program.current_block())
    outside = parent.create_var(dtype=var.dtype, shape=var._shape, type=var.type)
    assign(var, outside)
    return outside


def _branch(
    pred: Variable, fn: Callable[[], Any], what: str, helper: LayerHelper, negate: bool = False
) -> Any:
    """Build one branch of `cond`; return its results as variables of the outer block."""
    if not callable(fn):
        raise TypeError(f"The {what} in cond must be callable, but received {type(fn).__name__}.")
    condition = logical_not(pred) if negate else pred
    with ConditionalBlock([condition], is_scalar_condition=True).block():
        result = fn()
        if result is None:
            return None
        return map_structure(lambda var: _copy_to_parent(var, helper), result)


def cond(
    pred: Variable,
    true_fn: Callable[[], Any] | None = None,
    false_fn: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:
    """Return what `true_fn` returns if `pred` is true, else what `false_fn` returns.

    Both functions take nothing, build layers, and return None or equally nested Variables. Only the
    branch that `pred` selects is computed.
    """
    check_variable_and_dtype(pred, "pred", ["bool"], "fluid.layers.cond")
    check_type(name, "name", (str, type(None)), "fluid.layers.cond")
    helper = LayerHelper("cond", name=name)
    true_out = None if true_fn is None else _branch(pred, true_fn, "true_fn", helper)
    false_out = None if false_fn is None else _branch(pred, false_fn, "false_fn", helper, True)
    if true_out is None and false_out is None:
        return None
    rule = "Incompatible return values of true_fn and false_fn in cond"
    for missing, what, other in (
        (true_out, "true_fn", "false_fn"),
        (false_out, "false_fn", "true_fn"),
    ):
        if missing is None:
            raise ValueError(f"{rule}: {what} returns None while {other} returns non-None")
    try:
        assert_same_structure(true_out, false_out, check_types=False)
    except ValueError as error:
        raise ValueError(f"{rule}: {error}") from error
    mask = cast(pred, dtype="int32")
    return map_structure(lambda no, yes: select_input([no, yes], mask), false_out, true_out)


def _refuse(what: str, argument: str, layer: str, right: str, given: Any) -> TypeError:
    return TypeError(f"{what} of '{argument}' in {layer} must be {right}, but received: {given}.")


def case(
    pred_fn_pairs: Sequence[tuple[Variable, Callable[[], Any]]],
    default: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:
    """Return what the function of the first true condition returns.

    Args:
        pred_fn_pairs: pairs of a boolean Variable and a function.
        default: the function if no condition is true; that of the last pair by default.
    """
    LayerHelper("case", name=name)
    check_type(pred_fn_pairs, "pred_fn_pairs", (list, tuple), "case")
    for pair in pred_fn_pairs:
        if not isinstance(pair, tuple):
            raise _refuse("The elements' type", "pred_fn_pairs", "case", "tuple", type(pair))
        if len(pair) != 2:
            raise _refuse("The tuple's size", "pred_fn_pairs", "case", "2", len(pair))
        if not isinstance(pair[0], Variable):
            raise _refuse(
                "The pred's type", "pred_fn_pairs", "case", "boolean Variable", type(pair[0])
            )
        if not callable(pair[1]):
            raise TypeError(f"The fn for {pair[0].name} of pred_fn_pairs in case must be callable.")
    pairs = list(pred_fn_pairs)
    if default is None:
        default = pairs.pop()[1]
    elif not callable(default):
        raise TypeError("The default in case must be callable.")
    chain = default
    for pred, fn in reversed(pairs):
        chain = functools.partial(cond, pred=pred, true_fn=fn, false_fn=chain)
    return chain()


def switch_case(
    branch_index: Variable,
    branch_fns: Any,
    default: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:
    """Return what the function of the index in `branch_index` returns.

    Args:
        branch_index: a Variable with one integer.
        branch_fns: a dict, a list of (index, function) pairs, or a list of functions.
        default: the function for all other indices; that of the largest index by default.
    """
    LayerHelper("switch_case", name=name)
    check_variable_and_dtype(
        branch_index, "branch_index", ["uint8", "int32", "int64"], "switch_case"
    )
    if branch_index.dtype != VarType.INT64:
        branch_index = cast(branch_index, "int64")
    pairs = _numbered(branch_fns)
    if default is None:
        pairs = sorted(pairs, key=lambda pair: pair[0])
        default = pairs.pop()[1]
    elif not callable(default):
        raise TypeError("The default in switch_case must be callable.")
    conditions = []
    for number, fn in pairs:
        value = fill_constant(shape=[1], dtype="int64", value=number)
        conditions.append((equal(branch_index, value), fn))
    chain = default
    for pred, fn in conditions:
        chain = functools.partial(cond, pred=pred, true_fn=fn, false_fn=chain)
    return chain()


def _numbered(branch_fns: Any) -> list[tuple[int, Callable[[], Any]]]:
    """Return the checked (index, function) pairs of switch_case's argument."""
    check_type(branch_fns, "branch_fns", (list, tuple, dict), "switch_case")
    pairs = list(branch_fns.items() if isinstance(branch_fns, dict) else branch_fns)
    if all(callable(fn) for fn in pairs):
        pairs = list(enumerate(pairs))
    seen = set()
    for pair in pairs:
        if not isinstance(pair, tuple):
            raise _refuse("The elements' type", "branch_fns", "switch_case", "tuple", type(pair))
        if len(pair) != 2:
            raise _refuse("The tuple's size", "branch_fns", "switch_case", "2", len(pair))
        number, fn = pair
        if not isinstance(number, int):
            raise _refuse("The key's type", "branch_fns", "switch_case", "int", type(number))
        if number in seen:
            raise ValueError(
                f"The key in 'branch_fns' must be unique, but '{number}' appears more than once."
            )
        seen.add(number)
        if not callable(fn):
            what = f"The type of function for key {number}"
            raise _refuse(what, "branch_fns", "switch_case", "callable", type(fn))
    return pairs
