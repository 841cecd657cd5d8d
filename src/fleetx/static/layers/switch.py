"""Switch (one of several blocks runs) and IfElse (each row goes through one of two blocks)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from fleetx.static import unique_name
from fleetx.static.building.argument_checks import check_type, check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.op_layer import op_layer
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.control_flow import ConditionalBlock, ConditionalBlockGuard, parent_of
from fleetx.static.layers.math import logical_and, logical_not
from fleetx.static.layers.tensor import assign

__all__ = ["IfElse", "Switch", "merge_lod_tensor", "split_lod_tensor"]


class Switch:
    """Runs the block of the first case whose condition is true, or the default block.

    >>> with Switch() as switch:
    ...     with switch.case(step < limit):
    ...         assign(small, output=rate)
    ...     with switch.default():
    ...         assign(large, output=rate)
    """

    def __init__(self, name: str | None = None) -> None:
        self.helper = LayerHelper("switch", name=name)
        self.inside_scope = False
        self.pre_not_conditions: list[Variable] = []

    def case(self, condition: Variable) -> ConditionalBlockGuard:
        """Return the context of a block that runs if `condition`, and none before it, is true."""
        if not self.inside_scope:
            raise ValueError("Switch.case() must be called inside `with Switch() as switch:`.")
        check_variable_and_dtype(
            condition, "condition", ["bool"], "the member function case of fluid.layers.Switch"
        )
        if not self.pre_not_conditions:
            block = ConditionalBlock([condition], is_scalar_condition=True)
            self.pre_not_conditions.append(logical_not(x=condition))
        else:
            none_before = self.pre_not_conditions[-1]
            self.pre_not_conditions.append(logical_and(x=none_before, y=logical_not(x=condition)))
            block = ConditionalBlock(
                [logical_and(x=none_before, y=condition)], is_scalar_condition=True
            )
        return ConditionalBlockGuard(block)

    def default(self) -> ConditionalBlockGuard:
        """Return the context of the block that runs if no condition is true."""
        if not self.pre_not_conditions:
            raise ValueError("Switch.default() needs at least one condition before it.")
        block = ConditionalBlock([self.pre_not_conditions[-1]], is_scalar_condition=True)
        return ConditionalBlockGuard(block)

    def __enter__(self) -> Switch:
        self.inside_scope = True
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *rest: Any) -> None:
        self.inside_scope = False


@op_layer(
    "X=input mask",
    output="OutTrue OutFalse",
    returns="OutTrue OutFalse",
    input=Variable,
    mask=Variable,
    level=int,
)
def split_lod_tensor(input: Variable, mask: Variable, level: int = 0) -> tuple[Variable, Variable]:
    """Return the rows (or sequences) where `mask` is true, and those where it is false."""


@op_layer("in_true in_false x mask", x=Variable, mask=Variable, in_true=Variable, in_false=Variable)
def merge_lod_tensor(
    in_true: Variable, in_false: Variable, x: Variable, mask: Variable, level: int = 0
) -> Variable:
    """Merge the results of `split_lod_tensor` with the same mask."""


class IfElse:
    """Processes each row of a batch by one of two blocks, and merges the results in order.

    Inside a block, `input(x)` gives the rows of `x` that belong to it and `output(...)` names the
    results; calling the object returns the list of merged results.
    """

    OUT_IF_ELSE_BLOCKS = 0
    IN_IF_ELSE_TRUE_BLOCKS = 1
    IN_IF_ELSE_FALSE_BLOCKS = 2

    def __init__(self, cond: Variable, name: str | None = None) -> None:
        check_type(cond, "cond", Variable, "fluid.layers.IfElse")
        check_type(name, "name", (str, type(None)), "fluid.layers.IfElse")
        self.helper = LayerHelper("ifelse", name=name)
        self.cond = cond
        self.status = IfElse.OUT_IF_ELSE_BLOCKS
        self.conditional_true_block = ConditionalBlock(inputs=[cond])
        self.conditional_false_block = ConditionalBlock(inputs=[cond])
        self.output_table: tuple[list[Variable], list[Variable]] = ([], [])  # false, true
        self._parts: dict[str, tuple[Variable, Variable]] = {}

    def _parent_block(self) -> Any:
        return parent_of(self.helper.main_program.current_block())

    def input(self, x: Variable) -> Variable:
        """Return the rows of `x` that go through the block being built."""
        if self.status == IfElse.OUT_IF_ELSE_BLOCKS:
            raise ValueError("IfElse.input() must be called inside true_block or false_block.")
        if x.name not in self._parts:
            parent = self._parent_block()
            key = "ifelse_input" + self.helper.name
            true_part = parent.create_var(name=unique_name.generate(key), dtype=x.dtype)
            false_part = parent.create_var(name=unique_name.generate(key), dtype=x.dtype)
            parent.append_op(
                type="split_lod_tensor",
                inputs={"X": x, "Mask": self.cond},
                outputs={"OutTrue": true_part, "OutFalse": false_part},
                attrs={"level": 0},
            )
            self._parts[x.name] = (true_part, false_part)
        return self._parts[x.name][0 if self.status == IfElse.IN_IF_ELSE_TRUE_BLOCKS else 1]

    def true_block(self) -> AbstractContextManager[None]:
        """Return the context of the block for rows where the condition is true."""
        return self._building(IfElse.IN_IF_ELSE_TRUE_BLOCKS, self.conditional_true_block)

    def false_block(self) -> AbstractContextManager[None]:
        """Return the context of the block for rows where the condition is false."""
        return self._building(IfElse.IN_IF_ELSE_FALSE_BLOCKS, self.conditional_false_block)

    @contextmanager
    def _building(self, status: int, block: ConditionalBlock) -> Iterator[None]:
        if self.status != IfElse.OUT_IF_ELSE_BLOCKS:
            raise ValueError("blocks of an IfElse cannot be nested.")
        self.status = status
        try:
            with block.block():
                yield
            if not self._outputs():
                raise ValueError("a block of an IfElse must set its results with output().")
        finally:
            self.status = IfElse.OUT_IF_ELSE_BLOCKS

    def _outputs(self) -> list[Variable]:
        return self.output_table[int(self.status == IfElse.IN_IF_ELSE_TRUE_BLOCKS)]

    def output(self, *outs: Variable) -> None:
        """Set the results of the block being built."""
        if self.status == IfElse.OUT_IF_ELSE_BLOCKS:
            raise ValueError("IfElse.output() can only be called inside a block.")
        table, parent = self._outputs(), self._parent_block()
        for out in outs:
            check_type(out, "each output", Variable, "fluid.layers.IfElse.output")
            name = unique_name.generate(f"{self.helper.name}_output")
            outside = parent.create_var(name=name, dtype=out.dtype, shape=out._shape)
            table.append(outside)
            assign(input=out, output=outside)

    def __call__(self) -> list[Variable]:
        """Return the results of both blocks, merged row by row."""
        if self.status != IfElse.OUT_IF_ELSE_BLOCKS:
            raise ValueError("an IfElse must be called outside its blocks.")
        no, yes = self.output_table
        if not no and not yes:
            raise ValueError("true_block or false_block must be built before an IfElse is called.")
        if not no or not yes:
            return no or yes
        if len(no) != len(yes):
            raise ValueError(
                f"true_block of an IfElse has {len(yes)} outputs, but false_block has {len(no)}."
            )
        return [
            merge_lod_tensor(in_true=t, in_false=f, mask=self.cond, x=self.cond)
            for f, t in zip(no, yes, strict=True)
        ]
