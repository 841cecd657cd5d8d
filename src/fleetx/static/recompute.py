"""Which activations a backward pass computes again instead of keeping them.

Checkpoints cut the forward ops into segments. What a segment makes for itself is forgotten after
the forward pass and made again (as `<name>.subprog_<n>`, counted from the last segment) before the
segment's gradients; what others read, checkpoints and random values are kept. Dropout gets its
seed from a `seed` op, so that it drops the same elements again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fleetx.static import unique_name
from fleetx.static.block import Block
from fleetx.static.dtypes import VarType
from fleetx.static.op_registry import get_op
from fleetx.static.operator import Operator
from fleetx.static.program import sub_blocks


@dataclass
class Segment:
    """Forward ops between two checkpoints."""

    again: list[Operator] = field(default_factory=list)  # the ops that run a second time
    renames: dict[str, str] = field(default_factory=dict)  # variable -> its recomputed value
    is_done: bool = False  # the ops that run again are in the program


def make_segments(
    block: Block, path: Sequence[Operator], checkpoints: Sequence[str]
) -> dict[int, Segment]:
    """Return the segment of each op on the path that is in one, by the op's uid."""
    for op in path:
        if sub_blocks(op):
            raise ValueError(f"op {op.type!r} with an inner block cannot be recomputed.")
    held = set(checkpoints)
    found: dict[int, Segment] = {}
    for number, (start, end) in enumerate(reversed(_ranges(path, checkpoints))):
        outside = {n for op in path[end:] for n in op.input_arg_names}
        segment = Segment()
        for op in path[start:end]:
            names = [n for n in op.output_arg_names if not _is_kept(block, op, n, held | outside)]
            if names:
                segment.again.append(op)
                segment.renames.update({n: f"{n}.subprog_{number}" for n in names})
            found[op.uid] = segment
    return found


def _ranges(path: Sequence[Operator], checkpoints: Sequence[str]) -> list[tuple[int, int]]:
    """Return the segments as ranges of the path: up to each checkpoint, nothing after the last."""
    made_at = {n: i for i, op in enumerate(path) for n in op.output_arg_names}
    cuts = sorted({made_at.get(name, -1) + 1 for name in checkpoints})
    return [(a, b) for a, b in zip([0, *cuts], cuts, strict=False) if a < b]


def _is_kept(block: Block, op: Operator, name: str, held: set[str]) -> bool:
    var = block._find_var_recursive(name)
    if name in held or var is None or var.persistable:
        return True
    # Drawn again, random values would differ; a dropout that is given its seed repeats itself.
    return get_op(op.type).random and not op.input("Seed")


def seed_dropouts(block: Block, path: list[Operator]) -> list[Operator]:
    """Give every dropout on the path a seed op before it; return the path with these ops."""
    seeded: list[Operator] = []
    for op in path:
        if op.type == "dropout" and not op.input("Seed"):
            name = unique_name.generate(unique_name.generate("seed") + ".tmp")
            block.create_var(name=name, dtype=VarType.INT32, shape=[1])
            seed = int(op.attr("seed")) if op.attr("fix_seed") else 0
            seeded.append(
                block._insert_op(op.idx, type="seed", outputs={"Out": [name]}, attrs={"seed": seed})
            )
            op._inputs["Seed"] = [name]
        seeded.append(op)
    return seeded
