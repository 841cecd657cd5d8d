"""Graphs in Graphviz's DOT language, built node by node."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleetx.checkpoint.atomic import atomic_write
from fleetx.exports import export_defined

_COUNTER = itertools.count(1)


def crepr(v: Any) -> str:
    """Return a value as DOT text: strings are quoted."""
    return f'"{v}"' if isinstance(v, str) else str(v)


def _settings(attrs: dict[str, Any]) -> str:
    return ",".join(f"{key}={crepr(value)}" for key, value in attrs.items())


class Node:
    """A node with a label and settings; its name is a prefix and a number."""

    def __init__(self, label: str, prefix: str, description: str = "", **attrs: Any) -> None:
        self.label = label
        self.name = f"{prefix}_{next(_COUNTER)}"
        self.description = description
        self.attrs = attrs

    def __str__(self) -> str:
        extra = f",{_settings(self.attrs)}" if self.attrs else ""
        return f"{self.name} [label={self.label} {extra} ];"


class Edge:
    """An edge between two nodes."""

    def __init__(self, source: Node, target: Node, **attrs: Any) -> None:
        self.source = source
        self.target = target
        self.attrs = attrs

    def __str__(self) -> str:
        extra = f"[{_settings(self.attrs)}]" if self.attrs else ""
        return f"{self.source.name} -> {self.target.name} {extra}"


@dataclass
class Rank:
    """Nodes of the same rank."""

    kind: str
    name: str
    priority: int
    nodes: list[Node] = field(default_factory=list, init=False)

    def __str__(self) -> str:
        names = ",".join(node.name for node in self.nodes)
        return f"{{rank={self.kind};{names}}}" if names else ""


class Graph:
    """Nodes, edges and ranks under a title."""

    def __init__(self, title: str, **attrs: Any) -> None:
        self.title = title
        self.attrs = attrs
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self.rank_groups: dict[str, Rank] = {}

    def rank_group(self, kind: str, priority: int) -> str:
        """Add a rank, and return its name."""
        name = f"rankgroup-{len(self.rank_groups)}"
        self.rank_groups[name] = Rank(kind, name, priority)
        return name

    def node(self, label: str, prefix: str, description: str = "", **attrs: Any) -> Node:
        """Add a node; `rank` puts it into a rank."""
        rank = attrs.pop("rank", None)
        node = Node(label, prefix, description, **attrs)
        if rank is not None:
            self.rank_groups[rank].nodes.append(node)
        self.nodes.append(node)
        return node

    def edge(self, source: Node, target: Node, **attrs: Any) -> Edge:
        """Add an edge."""
        edge = Edge(source, target, **attrs)
        self.edges.append(edge)
        return edge

    def code(self) -> str:
        """Return the graph as text."""
        return str(self)

    def __str__(self) -> str:
        ranks = sorted(self.rank_groups.values(), key=lambda rank: rank.priority)
        settings = [f"{key}={crepr(value)};" for key, value in self.attrs.items()]
        lines = ["digraph G {", f"title = {crepr(self.title)}", *settings]
        return "\n".join([*lines, *map(str, [*ranks, *self.nodes, *self.edges]), "}"])

    def compile(self, dot_path: str) -> str:
        """Write the text, draw it as PDF if Graphviz is installed, and return the PDF's path."""
        with atomic_write(dot_path) as file:
            file.write(str(self).encode())
        image = str(Path(dot_path).with_suffix(".pdf"))
        program = shutil.which("dot")
        if program is not None:
            subprocess.run([program, "-Tpdf", dot_path, "-o", image], check=True)
        return image

    def show(self, dot_path: str) -> str:
        """Call `compile`; it does not open the PDF."""
        return self.compile(dot_path)


class GraphPreviewGenerator:
    """A graph of parameters, variables and ops."""

    def __init__(self, title: str) -> None:
        self.graph = Graph(title, layout="dot", concentrate="true", rankdir="TB")

    def __call__(self, path: str = "temp.dot", show: bool = False) -> None:
        """Write the graph."""
        self.graph.compile(path)

    def add_param(self, name: str, data_type: Any, highlight: bool = False) -> Node:
        """Add a parameter with its type."""
        label = f'<<table cellpadding="5"><tr><td bgcolor="#2b787e"><b>{name}</b></td></tr>'
        label += f"<tr><td>{data_type}</td></tr></table>>"
        color = "orange" if highlight else "#148b97"
        return self.graph.node(
            label, "param", name, shape="none", color=color, fontcolor="#ffffff", fontname="Arial"
        )

    def add_op(self, opType: str, highlight: bool = False, **kwargs: Any) -> Node:
        """Add an op."""
        color = "orange" if highlight else "#303A3A"
        look = {"shape": "box", "style": "rounded, filled, bold", "fontname": "Arial"}
        look |= {"color": color, "fontcolor": "#ffffff", "width": "1.3", "height": "0.84"}
        return self.graph.node(f"<<B>{opType}</B>>", "op", opType, **look)

    def add_arg(self, name: str, highlight: bool = False) -> Node:
        """Add a variable."""
        color = "orange" if highlight else "#dddddd"
        look = {"shape": "box", "style": "rounded,filled,bold", "fontname": "Arial"}
        look |= {"fontcolor": "#999999", "color": color}
        return self.graph.node(crepr(name), "arg", name, **look)

    def add_edge(self, source: Node, target: Node, highlight: bool = False, **kwargs: Any) -> Edge:
        """Add an edge."""
        color = "orange" if highlight else "#000000"
        return self.graph.edge(source, target, color=color, **kwargs)


export_defined(globals())
