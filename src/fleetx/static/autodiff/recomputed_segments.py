"""Choice of the activations that a backward pass recomputes instead of keeping.

Checkpoints divide the forward ops into segments. Activations that only their segment reads are
freed after the forward pass and recomputed (as `<name>.subprog_<n>`, counted from the last segment)
before the segment's gradients; checkpoints, random values and what others read are kept. Dropout
gets its seed from a `seed` op, so that it drops the same elements again. The running statistics of
a recomputed batch norm go to an unused variable, since they have already been updated.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from fleetx.static import unique_name
from fleetx.static.graph.block import Block
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_names import sub_blocks
from fleetx.static.graph.op_registry import get_op
from fleetx.static.graph.operator import Operator

logger = logging.getLogger("fleetx.static")


@dataclass
class Segment:
    """Forward ops between two checkpoints."""

    again: list[Operator] = field(default_factory=list)  # the ops that run a second time
    renames: dict[str, str] = field(default_factory=dict)  # variable -> its recomputed value
    unread: dict[str, str] = field(default_factory=dict)  # persistable -> its unused twin
    is_done: bool = False  # the ops that run again are in the program


_AGAIN = re.compile(r"\.subprog_(\d+)$")


def _again(name: str, number: int) -> str:
    return f"{name}.subprog_{number}"


def number_of(name: str) -> int | None:
    """Return the segment that recomputes a variable, by its name; None if there is none."""
    found = _AGAIN.search(name)
    return int(found[1]) if found else None


def first_name(name: str) -> str:
    """Return the original variable of a recomputed one, or the name unchanged."""
    return _AGAIN.sub("", name)


def make_segments(
    block: Block, path: Sequence[Operator], checkpoints: Sequence[str]
) -> dict[int, Segment]:
    """Return the segment of each op on the path that is in one, by the op's uid."""
    for op in path:
        if sub_blocks(op):
            raise ValueError(f"op {op.type!r} with an inner block cannot be recomputed.")
    checkpoints = _on_the_path(block, path, checkpoints)
    held = set(checkpoints)
    found: dict[int, Segment] = {}
    for number, (start, end) in enumerate(reversed(_ranges(path, checkpoints))):
        outside = {n for op in path[end:] for n in op.input_arg_names}
        segment = Segment()
        for op in path[start:end]:
            names = [n for n in op.output_arg_names if not _is_kept(block, op, n, held | outside)]
            if names:
                segment.again.append(op)
                segment.renames.update({n: _again(n, number) for n in names})
                kept = (block.find_var(n) for n in op.output_arg_names)
                segment.unread.update(
                    {v.name: _again(v.name, number) for v in kept if v and v.persistable}
                )
            found[op.uid] = segment
    return found


def _on_the_path(block: Block, path: Sequence[Operator], checkpoints: Sequence[str]) -> list[str]:
    """Return the checkpoints that the loss depends on; reject unknown names."""
    on_path = {n for op in path for n in (*op.input_arg_names, *op.output_arg_names)}
    for name in checkpoints:
        if name in on_path:
            continue
        if block.find_var(name) is not None:
            logger.warning("checkpoint %r is ignored: the loss does not depend on it.", name)
            continue
        near = difflib.get_close_matches(name, sorted(on_path), 3, 0.5)
        hint = f"; similar names are {', '.join(near)}" if near else ""
        raise ValueError(f"checkpoint {name!r} is not a variable of the program{hint}.")
    return [name for name in checkpoints if name in on_path]


def _ranges(path: Sequence[Operator], checkpoints: Sequence[str]) -> list[tuple[int, int]]:
    """Return the segments as ranges of the path: up to each checkpoint, nothing after the last."""
    made_at = {n: i for i, op in enumerate(path) for n in op.output_arg_names}
    cuts = sorted({made_at.get(name, -1) + 1 for name in checkpoints})
    return [(a, b) for a, b in zip([0, *cuts], cuts, strict=False) if a < b]


def _is_kept(block: Block, op: Operator, name: str, held: set[str]) -> bool:
    var = block.find_var(name)
    if name in held or var is None or var.persistable:
        return True
    # Random values would differ in a second run; dropout with a given seed is reproducible.
    return get_op(op.type).random and not op.input("Seed")


def seed_dropouts(block: Block, path: list[Operator]) -> list[Operator]:
    """Insert a seed op before every dropout on the path; return the path with these ops."""
    seeded: list[Operator] = []
    for op in path:
        if op.type == "dropout" and not op.input("Seed"):
            name = unique_name.generate(unique_name.generate("seed") + ".tmp")
            block.create_var(name=name, dtype=VarType.INT32, shape=[1])
            seed = int(op.attr("seed")) if op.attr("fix_seed") else 0
            seeded.append(
                block.insert_op(op.idx, type="seed", outputs={"Out": [name]}, attrs={"seed": seed})
            )
            op.inputs["Seed"] = [name]
        seeded.append(op)
    return seeded
