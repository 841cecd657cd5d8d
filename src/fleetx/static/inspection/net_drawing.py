"""Add programs to a graph of the package `graphviz`, or any object with `node` and `edge`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from fleetx.exports import export_defined
from fleetx.static.graph.program import Program
from fleetx.static.protobuf.serialize import program_to_desc

_LOOK = {"shape": "oval", "color": "#0F9D58", "style": "filled", "fontcolor": "#FFFFFF"}


def unique_id() -> Callable[[], int]:
    """Return a function that counts its calls from 1."""
    return itertools.count(1).__next__


def draw_node(op: Any) -> dict[str, str]:
    """Return the arguments of `graph.node` for an op's description."""
    return {**_LOOK, "name": op.type, "label": op.type}


def draw_edge(var_parent: dict[str, str], op: Any, var: Any, arg: str) -> dict[str, str]:
    """Return the arguments of `graph.edge` for a variable that an op reads."""
    label = f"{var.parameter}({arg})"
    return {"label": label, "head_name": op.type, "tail_name": var_parent[arg]}


def parse_graph(program: Program, graph: Any, var_dict: dict[str, str], **kwargs: Any) -> None:
    """Add the ops of a program's first block, and the variables between them, to a graph.

    Args:
        program: the program to draw.
        graph: has `node(**settings)` and `edge(**settings)`.
        var_dict: the producer of each variable; extended by those of this program.
        kwargs: accepted.
    """
    for block in program.blocks:
        for name in block.vars:
            var_dict.setdefault(name, "Feed")
    for index, op in enumerate(program_to_desc(program).blocks[0].ops):
        op.type = f"{op.type}_{index}"
        graph.node(**draw_node(op))
        var_dict.update((name, op.type) for out in op.outputs for name in out.arguments)
        for slot in op.inputs:
            for name in slot.arguments:
                if name in var_dict:
                    graph.edge(**draw_edge(var_dict, op, slot, name))


export_defined(globals())
