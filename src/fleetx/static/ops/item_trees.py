"""Ops on trees of items (Tree-based Deep Models): the children of nodes, and samples per layer.

Node 0 is padding. A row of TreeInfo is (item, layer, parent, children ...), and a row of Travel is
the path from the root to a leaf.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fleetx.static.graph.dtypes import VarType, to_torch
from fleetx.static.graph.op_registry import op
from fleetx.static.ops.random import generator
from fleetx.static.shapes.infer_rules import input_var, known, refuse, set_output

_DTYPE = int(VarType.INT32)


def _check_ids(ids: Tensor, count: int, op_type: str) -> None:
    if ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= count):
        wrong = ids[(ids < 0) | (ids >= count)][0]
        raise ValueError(f"ids of {op_type} must be at least 0 and below {count}, not {wrong}.")


@known("X", "TreeInfo")
def _infer_child(op: Any, block: Any, x: Any, info: Any) -> None:
    children = op.attr("child_nums")
    if len(info.shape) != 2 or 0 <= info.shape[1] < 3 + children:
        raise refuse(op, block, f"TreeInfo needs 3 + {children} columns (child_nums {children}).")
    for slot in ("Child", "LeafMask"):
        set_output(op, block, slot, (*x.shape, children), op.attr("dtype"))


@op("tdm_child", inputs="X TreeInfo", outputs="Child LeafMask", grad=None, infer=_infer_child)
def tdm_child(
    ids: Tensor, info: Tensor, *, child_nums: int = 1, dtype: int = _DTYPE
) -> tuple[Tensor, Tensor]:
    """Return the children of nodes, and which of them are items; zeros where there are none."""
    _check_ids(ids, len(info), "tdm_child")
    rows = info[ids.long()]
    inner = (ids != 0) & (rows[..., 3] != 0)
    children = torch.where(inner[..., None], rows[..., 3 : 3 + child_nums], 0)
    items = inner[..., None] & (info[children.long(), 0] != 0)
    kind = to_torch(dtype)
    return children.to(kind), items.to(kind)


def _infer_sampler(op: Any, block: Any) -> None:
    x = input_var(op, block, "X")
    samples, offsets = op.attr("neg_samples_num_list"), op.attr("layer_offset_lod")
    if len(offsets) != len(samples) + 1:
        raise refuse(
            op, block, f"{len(samples)} layers need {len(samples) + 1} offsets, not {offsets}."
        )
    for layer, count in enumerate(samples):
        nodes = offsets[layer + 1] - offsets[layer]
        if count >= nodes:
            raise refuse(
                op, block, f"layer {layer} has {nodes} nodes, too few for {count} negative ones."
            )
    if x is not None:
        width = sum(samples) + len(samples) * op.attr("output_positive")
        for slot in ("Out", "Labels", "Mask"):
            set_output(op, block, slot, (x.shape[0], width), op.attr("dtype"))


def _draw(rows: int, count: int, below: int, own: torch.Generator | None) -> Tensor:
    """Return `count` different numbers below `below` per row (Floyd's algorithm)."""
    drawn = torch.empty((rows, count), dtype=torch.int64)
    for i in range(count):
        last = below - count + i
        number = torch.randint(last + 1, (rows,), generator=own)
        taken = (drawn[:, :i] == number[:, None]).any(1)
        drawn[:, i] = torch.where(taken, last, number)
    return drawn


def _sample_layer(nodes: Tensor, positive: Tensor, count: int, own: Any) -> Tensor:
    """Return `count` different nodes of a layer per row, none of them the row's positive one."""
    order = nodes.argsort()
    found = torch.searchsorted(nodes[order], positive.contiguous()).clamp_max(len(nodes) - 1)
    place = order[found]
    missing = (nodes[place] != positive) & (positive != 0)
    if bool(missing.any()):
        raise ValueError(
            f"node {int(positive[missing][0])} of Travel is not among the nodes of its layer."
        )
    drawn = _draw(len(positive), count, len(nodes) - 1, own)
    return nodes[drawn + (drawn >= place[:, None])]


@op(
    "tdm_sampler",
    inputs="X Travel Layer",
    outputs="Out Labels? Mask",
    grad=None,
    infer=_infer_sampler,
    random=True,
)
def tdm_sampler(
    ids: Tensor,
    travel: Tensor,
    layers: Tensor,
    *,
    output_positive: bool = True,
    neg_samples_num_list: list[int] = [],
    layer_offset_lod: list[int] = [],
    seed: int = 0,
    dtype: int = _DTYPE,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return per layer the node on an item's path and others of the layer, labels and a mask.

    Layers that a path does not reach (node 0) are zeros in all three.
    """
    _check_ids(ids, len(travel), "tdm_sampler")
    paths = travel[ids.reshape(-1).long()].long().cpu()
    nodes = layers.reshape(-1).long().cpu()
    own = generator(seed, nodes.device)
    samples, labels, masks = [], [], []
    for layer, count in enumerate(neg_samples_num_list):
        start, end = layer_offset_lod[layer : layer + 2]
        positive = paths[:, layer]
        chosen = _sample_layer(nodes[start:end], positive, count, own)
        label = torch.zeros_like(chosen)
        if output_positive:
            chosen = torch.cat([positive[:, None], chosen], 1)
            label = torch.cat([torch.ones_like(positive)[:, None], label], 1)
        mask = (positive != 0).long()[:, None].expand_as(chosen)
        samples.append(chosen * mask)
        labels.append(label * mask)
        masks.append(mask)
    kind = to_torch(dtype)
    found = [torch.cat(parts, 1).to(ids.device, kind) for parts in (samples, labels, masks)]
    return found[0], found[1], found[2]
