"""Ops for tagging and comparing sequences: linear-chain CRF, decoding, edit distance, beams.

The transition parameter has two rows more than tags: the weights to start with a tag, to end with
it, and then from each tag (row) to the next (column).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_registry import detached_op, op
from fleetx.static.shapes.infer_rules import shapes
from fleetx.static.shapes.lod import Lods, WithLod, as_tensor, lod_of, positions, segment_ids


def _dense(
    emission: torch.Tensor, length: torch.Tensor | None, lod: Lods, op_type: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Return emissions as [sequences, steps, tags], the lengths, and where the rows came from."""
    if length is not None:
        return emission, length.reshape(-1).to(emission.device), None
    offsets = lod_of(lod, "Emission", op_type)[-1]
    lengths = np.diff(offsets)
    width = int(lengths.max(initial=0))
    where = segment_ids(offsets, emission.device) * width + positions(offsets, emission.device)
    dense = emission.new_zeros(len(lengths) * width, emission.shape[-1])
    dense = dense.index_copy(0, where, emission)
    lengths_tensor = as_tensor(lengths, emission.device)
    return dense.view(len(lengths), width, -1), lengths_tensor, where


def _spread(values: torch.Tensor, where: torch.Tensor | None, shape: Any) -> torch.Tensor:
    """Return one number per row as a [sequences, steps] tensor."""
    flat = values.reshape(-1)
    if where is None:
        return flat.view(shape)
    dense = flat.new_zeros(shape[0] * shape[1])
    return dense.index_copy(0, where, flat).view(shape)


@op(
    "linear_chain_crf",
    inputs="Emission Transition Label! Length?!",
    outputs="Alpha? EmissionExps? TransitionExps? LogLikelihood",
    infer=shapes(
        "Emission Transition",
        lambda op, emission, transition: {
            "Alpha": (emission.shape, emission.dtype),
            "EmissionExps": (emission.shape, emission.dtype),
            "TransitionExps": (transition.shape, transition.dtype),
            "LogLikelihood": ((-1, 1), emission.dtype),
        },
    ),
    lod="none",
)
def linear_chain_crf(emission: Any, transition: Any, label: Any, length: Any, *, lod: Lods) -> Any:
    """Return the negative log likelihood of each sequence of tags.

    Paddle calls this output LogLikelihood although it is a cost to be minimised.
    """
    dense, lengths, where = _dense(emission, length, lod, "linear_chain_crf")
    count, steps, _ = dense.shape
    tags = _spread(label.long(), where, (count, steps))
    start, end, moves = transition[0], transition[1], transition[2:]
    inside = torch.arange(steps, device=dense.device) < lengths[:, None]

    alpha = dense[:, 0] + start
    alphas = [alpha.detach()]
    for step in range(1, steps):
        onward = torch.logsumexp(alpha[:, :, None] + moves, dim=1) + dense[:, step]
        alpha = torch.where(inside[:, step, None], onward, alpha)
        alphas.append(alpha.detach())
    total = torch.logsumexp(alpha + end, dim=1)

    own = dense.gather(2, tags[:, :, None]).squeeze(2).masked_fill(~inside, 0).sum(1)
    between = moves[tags[:, :-1], tags[:, 1:]].masked_fill(~inside[:, 1:], 0).sum(1)
    last = tags.gather(1, (lengths - 1).clamp(min=0)[:, None]).squeeze(1)
    score = own + between + start[tags[:, 0]] + end[last]
    cost = torch.where(lengths > 0, total - score, torch.zeros_like(total))
    with torch.no_grad():
        shares = torch.stack(alphas, 1).softmax(2).masked_fill(~inside[:, :, None], 0)
        exps = (emission - emission.amax(-1, keepdim=True)).exp()
        if where is not None:
            shares = shares.flatten(0, 1)[where]
        scales = transition.exp()
    return shares, exps, scales, cost[:, None]


def _path(op: Any, emission: Any) -> dict[str, Any]:
    shape = emission.shape[:2] if op.input("Length") else (emission.shape[0], 1)
    return {"ViterbiPath": (shape, VarType.INT64, emission.lod_level)}


@detached_op(
    "crf_decoding",
    inputs="Emission Transition Label? Length?",
    outputs="ViterbiPath",
    infer=shapes("Emission", _path),
)
def crf_decoding(emission: Any, transition: Any, label: Any, length: Any, *, lod: Lods) -> Any:
    """Return the most likely tags; with labels, 1 where the tag is the label and 0 elsewhere."""
    dense, lengths, where = _dense(emission, length, lod, "crf_decoding")
    count, steps, tags = dense.shape
    start, end, moves = transition[0], transition[1], transition[2:]
    inside = torch.arange(steps, device=dense.device) < lengths[:, None]
    best = dense[:, 0] + start
    came_from = []
    stay = torch.arange(tags, device=dense.device).expand(count, tags)
    for step in range(1, steps):
        value, source = (best[:, :, None] + moves).max(dim=1)
        best = torch.where(inside[:, step, None], value + dense[:, step], best)
        came_from.append(torch.where(inside[:, step, None], source, stay))
    # Steps beyond a sequence's end keep its last tag, so all paths can be walked back together.
    tag = (best + end).argmax(dim=1)
    path = [tag]
    for source in reversed(came_from):
        tag = source.gather(1, tag[:, None]).squeeze(1)
        path.append(tag)
    found = torch.stack(path[::-1], dim=1)
    if where is None:
        found = found.masked_fill(~inside, 0)
        if label is not None:
            found = ((found == label.view_as(found)) & inside).long()
        return found
    rows = found.reshape(-1)[where][:, None]
    if label is not None:
        rows = (rows == label.view_as(rows)).long()
    return WithLod(rows, lod_of(lod, "Emission", "crf_decoding"))


@detached_op(
    "edit_distance",
    inputs="Hyps Refs HypsLength? RefsLength?",
    outputs="SequenceNum Out",
    infer=shapes(
        "",
        lambda op: {"SequenceNum": ((1,), VarType.INT64), "Out": ((-1, 1), VarType.FP32)},
    ),
)
def edit_distance(
    hyps: Any, refs: Any, hyps_length: Any, refs_length: Any, *, normalized: bool = False, lod: Lods
) -> Any:
    """Return how many insertions, deletions and replacements lead from each Refs to its Hyps."""
    ours = _sequences(hyps, hyps_length, lod, "Hyps")
    theirs = _sequences(refs, refs_length, lod, "Refs")
    if len(ours) != len(theirs):
        raise ValueError(f"edit_distance compares {len(ours)} sequences with {len(theirs)}.")
    distances = []
    for hyp, ref in zip(ours, theirs, strict=True):
        distance = float(_levenshtein(hyp, ref))
        if normalized:
            if not len(ref):
                raise ValueError("edit_distance cannot normalise by a reference of length 0.")
            distance /= len(ref)
        distances.append([distance])
    device = hyps.device
    count = torch.tensor([len(ours)], device=device)
    return count, torch.tensor(distances, dtype=torch.float32, device=device)


def _sequences(x: Any, length: Any, lod: Lods, slot: str) -> list[np.ndarray[Any, Any]]:
    if length is not None:
        rows = x.reshape(len(x), -1).cpu().numpy()
        return [row[:n] for row, n in zip(rows, length.reshape(-1).tolist(), strict=True)]
    offsets = lod_of(lod, slot, "edit_distance")[-1]
    return np.split(x.reshape(-1).cpu().numpy(), offsets[1:-1])


def _levenshtein(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> int:
    row = np.arange(len(b) + 1)
    places = np.arange(len(b) + 1)
    for i, item in enumerate(a):
        best = np.minimum(row[1:] + 1, row[:-1] + (b != item))
        best = np.concatenate([[i + 1], best])
        # Insertions run along the row: the best place to the left plus the way from there.
        row = np.minimum.accumulate(best - places) + places
    return int(row[-1])


@detached_op("gather_tree", inputs="Ids Parents")
def gather_tree(ids: Any, parents: Any) -> Any:
    """Follow each beam back from its last step: [steps, batch, beams] of whole paths."""
    steps = [ids[-1]]
    beam = parents[-1].long()
    for step in range(len(ids) - 2, -1, -1):
        steps.append(ids[step].gather(1, beam))
        beam = parents[step].long().gather(1, beam)
    return torch.stack(steps[::-1])
