"""Losses over very many classes: noise-contrastive, sampled softmax, hierarchical sigmoid."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from fleetx.static.graph.op_registry import op
from fleetx.static.ops.embedding import TABLE_ATTRS
from fleetx.static.ops.random import generator

UNIFORM, LOG_UNIFORM, CUSTOM = 0, 1, 2


def _log_uniform_probability(ids: torch.Tensor, last: int) -> torch.Tensor:
    """Return how likely ids between 0 and `last` are; `nce` and `sample_logits` disagree on it."""
    ids = ids.to(torch.float64)
    return torch.log((ids + 2.0) / (ids + 1.0)) / math.log(last + 1)


def _draw_log_uniform(
    shape: tuple[int, ...], classes: int, device: torch.device, own: torch.Generator | None
) -> torch.Tensor:
    uniform = torch.rand(shape, dtype=torch.float64, device=device, generator=own)
    return (torch.exp(uniform * math.log(classes)).to(torch.int64) - 1).clamp(0, classes - 1)


@op(
    "nce",
    inputs="Input Label! Weight Bias? SampleWeight?! CustomDistProbs?! CustomDistAlias?! "
    "CustomDistAliasProbs?!",
    outputs="Cost SampleLogits? SampleLabels?",
    attrs=TABLE_ATTRS,
    random=True,
)
def _nce(
    x: torch.Tensor,
    label: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    sample_weight: torch.Tensor | None,
    dist: torch.Tensor | None,
    alias: torch.Tensor | None,
    alias_probs: torch.Tensor | None,
    *,
    num_total_classes: int = 0,
    num_neg_samples: int = 10,
    sampler: int = 0,
    seed: int = 0,
    custom_neg_classes: list[int] = [],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute the loss of telling each row's true classes from sampled ones, drawn by `sampler`."""
    rows = x.shape[0]
    label = label.reshape(rows, -1)
    shape = (rows, num_neg_samples)
    own = generator(seed, x.device)
    if custom_neg_classes:
        noise = torch.tensor(custom_neg_classes, device=x.device).expand(rows, -1)
    elif sampler == LOG_UNIFORM:
        noise = _draw_log_uniform(shape, num_total_classes, x.device, own)
    elif sampler == CUSTOM and dist is not None:
        if x.is_meta:
            noise = torch.empty(shape, dtype=torch.int64, device="meta")
        else:
            noise = torch.multinomial(
                dist.expand(rows, -1), num_neg_samples, replacement=True, generator=own
            )
    else:
        noise = torch.randint(num_total_classes, shape, device=x.device, generator=own)
    classes = torch.cat([label, noise], 1)
    if sampler == LOG_UNIFORM:
        chance = _log_uniform_probability(classes, num_total_classes - 1).to(x.dtype)
    elif sampler == CUSTOM and dist is not None:
        chance = dist[classes].to(x.dtype)
    else:
        chance = torch.full_like(classes, 1, dtype=x.dtype) / num_total_classes
    # Unlike weight[classes], a look-up refuses a class below zero.
    logits = torch.einsum("nd,nkd->nk", x, F.embedding(classes, weight))
    if bias is not None:
        logits = logits + bias.reshape(-1)[classes]
    found = torch.sigmoid(logits)
    noise_level = chance * num_neg_samples
    is_true = torch.arange(classes.shape[1], device=x.device) < label.shape[1]
    cost = -torch.log(torch.where(is_true, found, noise_level) / (found + noise_level))
    cost = cost.sum(1, keepdim=True)
    if sample_weight is not None and not x.is_meta:  # weights may be those of a larger batch
        cost = cost * sample_weight.reshape(-1, 1)[:rows]
    return cost, found.detach(), classes


def _default_paths(label: torch.Tensor, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return nodes and decisions from a binary tree's leaves to its root, nodes -1 beyond."""
    code = label.reshape(-1, 1) + classes
    bits = torch.arange((classes - 1).bit_length(), device=label.device)
    nodes = torch.bitwise_right_shift(code, bits + 1) - 1
    return nodes, torch.bitwise_right_shift(code, bits) & 1


@op(
    "hierarchical_sigmoid",
    inputs="X W Label! PathTable?! PathCode?! Bias?",
    outputs="Out PreOut? W_Out?",
    attrs=TABLE_ATTRS,
)
def _hierarchical_sigmoid(
    x: torch.Tensor,
    weight: torch.Tensor,
    label: torch.Tensor,
    path_table: torch.Tensor | None,
    path_code: torch.Tensor | None,
    bias: torch.Tensor | None,
    *,
    num_classes: int = 2,
) -> tuple[torch.Tensor, torch.Tensor, None]:
    """Return the loss of the decisions on the way through a tree to each row's class.

    Paths shorter than the longest one count log(2) for each missing decision, as Fluid's op does.
    """
    if path_table is not None and path_code is not None:
        nodes, decisions = path_table, path_code
    else:
        nodes, decisions = _default_paths(label, num_classes)
    inside = nodes >= 0
    nodes = nodes.clamp_min(0)
    scores = torch.einsum("nd,nkd->nk", x, weight[nodes])
    if bias is not None:
        scores = scores + bias.reshape(-1)[nodes]
    scores = torch.where(inside, scores.clamp(-40.0, 40.0), 0.0)
    taken = (decisions * inside).to(x.dtype)
    loss = F.softplus(scores) - taken * scores
    return loss.sum(1, keepdim=True), F.softplus(scores).detach(), None


@op(
    "sample_logits",
    inputs="Logits Labels! CustomizedSamples?! CustomizedProbabilities?!",
    outputs="Samples Probabilities LogitsDim? LabelsDim? SampledLogits SampledLabels",
    attrs={"uniq": True},
    random=True,
)
def _sample_logits(
    logits: torch.Tensor,
    labels: torch.Tensor,
    samples: torch.Tensor | None,
    probabilities: torch.Tensor | None,
    *,
    use_customized_samples: bool = False,
    remove_accidental_hits: bool = True,
    num_samples: int = 1,
    seed: int = 0,
) -> tuple[Any, ...]:
    """Return logits of the true and of sampled classes, corrected for how likely they were."""
    rows, true = labels.shape
    classes = logits.shape[1]
    if not use_customized_samples or samples is None or probabilities is None:
        noise = _draw_distinct(num_samples, classes, logits.device, generator(seed, logits.device))
        samples = torch.cat([labels, noise.expand(rows, -1)], 1)
        once = _log_uniform_probability(samples, classes)
        # The chance that a class is among the distinct samples.
        probabilities = -torch.expm1(num_samples * torch.log1p(-once)).to(logits.dtype)
    picked = logits.gather(1, samples) - torch.log(probabilities.clamp_min(1e-20))
    if remove_accidental_hits:
        hits = (samples[:, None, true:] == labels[:, :, None]).any(1)
        picked = torch.cat([picked[:, :true], picked[:, true:] - hits.to(picked.dtype) * 1e20], 1)
    places = torch.arange(true, device=labels.device).expand(rows, -1)
    return samples, probabilities, None, None, picked, places


def _draw_distinct(
    count: int, classes: int, device: torch.device, own: torch.Generator | None
) -> torch.Tensor:
    """Return distinct classes, drawn log-uniformly."""
    if device.type == "meta":
        return torch.empty(count, dtype=torch.int64, device=device)
    chance = _log_uniform_probability(torch.arange(classes, device=device), classes)
    return torch.multinomial(chance, count, replacement=False, generator=own)
