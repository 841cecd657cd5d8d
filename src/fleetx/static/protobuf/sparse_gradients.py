"""The gradients of a program that are SelectedRows in Paddle.

In FleetX a table's gradient is sparse if that saves work, independent of its variable's type. In
Paddle the variable's type decides what the gradient op writes, so saved programs set it.
"""

from __future__ import annotations

from fleetx.static.graph.block import Block

# Gradient ops of look-ups, with the output that holds rows if `is_sparse` is set.
_LOOK_UPS = {
    "lookup_table_grad": "W@GRAD",
    "lookup_table_v2_grad": "W@GRAD",
    "fused_embedding_seq_pool_grad": "W@GRAD",
    "nce_grad": "Weight@GRAD",
    "hierarchical_sigmoid_grad": "W@GRAD",
}
# Ops that return selected rows if all inputs in X are selected rows.
_KEEP_ROWS = frozenset({"sum", "scale", "clip", "clip_by_norm", "elementwise_mul", "cast"})


def selected_rows(block: Block) -> set[str]:
    """Return the names of the block's variables that are selected rows in Paddle."""
    found: set[str] = set()
    for op in block.ops:
        if op.type in _LOOK_UPS and op.attrs.get("is_sparse"):
            found.update(op.output(_LOOK_UPS[op.type]))
        elif op.type in _KEEP_ROWS and found and found.issuperset(op.input("X")):
            found.update(op.output("Out"))
    return found
