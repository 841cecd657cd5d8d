"""The ops and variables of a block that a backward pass concerns.

Scripts that write their own backward pass call these functions before they append gradient ops.
Variables without a gradient are those with `stop_gradient` and unused outputs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from fleetx.static.graph.block import Block
from fleetx.static.graph.op_names import reads_of, sub_blocks
from fleetx.static.graph.op_registry import GRAD_SUFFIX
from fleetx.static.graph.operator import Operator
from fleetx.static.graph.program import Program


def op_path(
    block: Block,
    targets: Iterable[str],
    stop: Collection[str] = (),
    sources: Iterable[str] = (),
) -> list[Operator]:
    """Return the ops that the targets depend on, in order.

    The search stops at the names in `stop`. With `sources`, only ops that depend on one of them are
    returned.
    """
    needed = set(targets)
    path = []
    for op in reversed(block.ops):
        if any(name in needed for name in op.output_arg_names):
            path.append(op)
            needed.update(name for name in reads_of(op) if name not in stop)
    path.reverse()
    reached = set(sources)
    if not reached:
        return path
    found = []
    for op in path:
        if any(name in reached for name in reads_of(op)):
            found.append(op)
            reached.update(name for name in op.output_arg_names if name not in stop)
    return found


def stopped_gradients(program: Program) -> dict[int, set[str]]:
    """Return, by block, the names of the gradients that `stop_gradient` excludes."""
    return {
        block.idx: {
            name + GRAD_SUFFIX for name, variable in block.vars.items() if variable.stop_gradient
        }
        for block in program.blocks
    }


def unneeded_outputs(
    block: Block, path: Sequence[Operator], targets: Iterable[str], stop: Collection[str]
) -> set[str]:
    """Return outputs of the path that no target depends on, so that they have no gradient."""
    needed = set(targets)
    found: set[str] = set()
    for op in reversed(path):
        if not sub_blocks(op):
            found.update(
                name
                for name in op.output_arg_names
                if name not in needed
                and name not in op.input_arg_names
                and not block.var_recursive(name).stop_gradient
            )
        needed.update(name for name in op.input_arg_names if name not in stop)
    return found
