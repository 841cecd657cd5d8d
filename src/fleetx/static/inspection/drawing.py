"""A block as a drawing for Graphviz."""

from __future__ import annotations

from collections.abc import Collection

from fleetx.checkpoint.atomic import atomic_write
from fleetx.static.graph.block import Block
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Parameter


def draw_block_graphviz(
    block: Block, highlights: Collection[str] | None = None, path: str = "./temp.dot"
) -> None:
    """Write a `.dot` file with the ops of a block and the variables between them.

    Args:
        block: the block to draw.
        highlights: names of variables to highlight.
        path: the file.
    """
    marked = set(highlights or ())
    lines = ["digraph G {", "  node [fontsize=10];"]
    names: dict[str, str] = {}
    for i, op in enumerate(block.ops):
        lines.append(f'  op{i} [label="{_quoted(op.type)}" shape=box style=rounded];')
        for name in (*op.input_arg_names, *op.output_arg_names):
            if name not in names:
                names[name] = f"var{len(names)}"
                lines.append(f"  {names[name]} [{_look(block, name, marked)}];")
        lines += [f"  {names[name]} -> op{i};" for name in op.input_arg_names]
        lines += [f"  op{i} -> {names[name]};" for name in op.output_arg_names]
    with atomic_write(path) as file:
        file.write(("\n".join([*lines, "}"]) + "\n").encode())


def draw_graph(
    startup_program: Program, main_program: Program, graph_path: str = "./graph.dot", **_: object
) -> None:
    """Write a `.dot` file with the ops of a program; the startup program is not drawn."""
    del startup_program
    draw_block_graphviz(main_program.global_block(), path=graph_path)


def _look(block: Block, name: str, marked: set[str]) -> str:
    var = block.find_var(name)
    shape = "" if var is None or var.shape is None else f"\\n{tuple(var.shape)}"
    look = f'label="{_quoted(name)}{shape}" shape=ellipse'
    if name in marked:
        return look + " style=filled fillcolor=orange"
    return look + " style=filled fillcolor=lightgrey" if isinstance(var, Parameter) else look


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
