"""Convolution over trees (Mou et al., Convolutional Neural Networks over Tree Structures).

The kernel of a node is the node and its descendants down to a depth. Its three matrices belong to
the left, the right and the top; how much of each a descendant gets depends on its depth and on its
place among its siblings.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fleetx.static.graph.op_registry import op
from fleetx.static.shapes.infer_rules import known, refuse, set_output


@known("NodesVector", "EdgeSet", "Filter")
def _infer(op: Any, block: Any, nodes: Any, edges: Any, weight: Any) -> None:
    if len(nodes.shape) != 3 or len(edges.shape) != 3 or edges.shape[2] != 2:
        raise refuse(op, block, "nodes must be [batch, nodes, width], edges [batch, edges, 2].")
    if len(weight.shape) != 4 or weight.shape[:2] != (nodes.shape[2], 3):
        raise refuse(op, block, f"Filter must be [{nodes.shape[2]}, 3, outputs, filters].")
    if op.attr("max_depth") < 2:
        raise refuse(op, block, f"max_depth must be at least 2, not {op.attr('max_depth')}.")
    set_output(op, block, "Out", (*nodes.shape[:2], *weight.shape[2:]), nodes.dtype)


def shares(edges: np.ndarray[Any, Any], nodes: int, depth: int) -> np.ndarray[Any, Any]:
    """Return [nodes, 3, nodes]: how much of left, right and top each node gets in each kernel."""
    used = (edges != 0).all(1)
    count = int(used.sum()) + 1
    edges = edges[: len(edges) if used.all() else int(used.argmin())]
    if count > nodes or edges.size and (edges.min() < 1 or edges.max() > count):
        raise ValueError(
            f"the edges of tree_conv must connect nodes 1 to {min(count, nodes)}: {count - 1} "
            f"edges make {count} nodes, and there are vectors for {nodes}."
        )
    parents, children = edges.T - 1
    if len(np.unique(children)) != len(children):
        raise ValueError("a node of tree_conv has two parents, which a tree does not allow.")
    parent = np.full(count, -1)
    parent[children] = parents
    siblings = np.bincount(parents, minlength=count)
    order = np.argsort(parents, kind="stable")
    first = np.cumsum(siblings) - siblings
    place = np.zeros(count)
    place[children[order]] = np.arange(len(order)) - first[parents[order]]
    among = np.ones(count)
    among[children] = siblings[parents]
    aside = np.where(among > 1, place / np.maximum(among - 1, 1), 0.5)
    found = np.zeros((nodes, 3, nodes))
    root = node = np.arange(count)
    for level in range(depth):
        low = level / depth
        left = low * aside[node]
        found[root, :, node] = np.stack([left, low * (1 - left), np.full(len(node), 1 - low)], 1)
        root = parent[root]
        node, root = node[root >= 0], root[root >= 0]
        # An edge that leads back to an ancestor is not followed.
        new = ~found[root, :, node].any(1)
        node, root = node[new], root[new]
    return found


@op("tree_conv", inputs="NodesVector EdgeSet! Filter", infer=_infer)
def tree_conv(nodes: Tensor, edges: Tensor, weight: Tensor, *, max_depth: int = 2) -> Tensor:
    """Convolve the vectors of each tree's nodes; rows beyond its nodes are zeros."""
    trees = [shares(tree, nodes.shape[1], max_depth) for tree in edges.cpu().numpy()]
    spread = torch.from_numpy(np.stack(trees)).to(nodes)
    seen = torch.einsum("bpkn,bnf->bpfk", spread, nodes)
    return torch.einsum("bpfk,fkoc->bpoc", seen, weight)
