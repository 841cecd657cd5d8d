"""Workers that divide one copy of a model, but bring different samples: the copy trains on all of
them (`hybrid_configs["joined_batches"]`).

Inputs are gathered before the model runs, and every worker gets the outputs of its own samples, of
which its script computes a loss. The gradients of outputs are gathered in backward and divided by
the number of workers, so that training is that of as many copies. A script thus chooses samples by
its rank whatever the degrees are, which `auto` needs: it chooses them after the first batch.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn

from fleetx.comm.layout import Group
from fleetx.techniques.random_state import SharedRandomNumbers
from fleetx.techniques.tensors_inside import all_tensors, map_tensors

Sends = Callable[..., None]
"""Told the bytes that a worker sends in `forward`, and will send in `backward`."""


def join_batches(
    model: nn.Module, group: Group, numbers: SharedRandomNumbers, sends: Sends
) -> None:
    """Run a model on the samples of all workers of a group, and return to each the outputs of its
    own. `numbers` are those that the workers share while the model runs; `sends` is told what the
    worker sends."""
    inner = model.forward

    @wraps(inner)
    def forward(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = joined_samples((args, kwargs), group, sends)
        with numbers.in_use():
            outputs = inner(*args, **kwargs)
        own = _own_outputs(outputs, _samples(all_tensors((args, kwargs))), group)
        gradients = sum(_bytes(t) for t in all_tensors(own) if t.dim() and t.requires_grad)
        sends(backward=(group.size - 1) * gradients)
        return own

    model.forward = forward


def joined_samples(values: Any, group: Group, sends: Sends) -> Any:
    """Return tensors in tuples, lists and dictionaries with the samples of all workers of a group,
    by place; `sends` is told what the worker sends.

    Samples are counted by the first dimension of the first tensor; tensors with another first
    dimension are no samples, and stay as they are. Raises ValueError on all workers if their
    tensors have different shapes.
    """
    count = _samples(all_tensors(values))
    own = torch.tensor(checksum_of_shapes(values))
    if len({int(each) for each in group.all_gather(own)}) > 1:
        raise ValueError(
            f"hybrid_configs['joined_batches'] is True, by which workers "
            f"{', '.join(map(str, group.ranks))} train on the samples of all of them, but their "
            f"batches have different shapes (here {_shapes(values)}): give all of them the same, "
            "by drop_last=True in the loader and a fixed length of sequences."
        )

    def join(tensor: Tensor) -> Tensor:
        if not tensor.dim() or len(tensor) != count:
            return tensor
        sends(forward=(group.size - 1) * _bytes(tensor))
        return torch.cat(group.all_gather(tensor))

    return map_tensors(values, join, every=True)


def _bytes(tensor: Tensor) -> float:
    return float(tensor.numel() * tensor.element_size())


def checksum_of_shapes(values: Any) -> int:
    """Return a number that tells whether tensors have the same shapes and types."""
    return zlib.crc32(_shapes(values).encode())


def _shapes(values: Any) -> str:
    return ", ".join(f"{t.dtype}{list(t.shape)}" for t in all_tensors(values))


def _samples(tensors: Sequence[Tensor]) -> int:
    return next((len(t) for t in tensors if t.dim()), 0)


def _own_outputs(outputs: Any, total: int, group: Group) -> Any:
    """Return the outputs of this worker's samples; scalars, such as a loss that the model computes,
    are those of all samples."""
    whole = [t for t in all_tensors(outputs) if t.dim()]
    for tensor in whole:
        if len(tensor) != total:
            raise ValueError(
                f"hybrid_configs['joined_batches'] is True, and the model returns a tensor of the "
                f"shape {tuple(tensor.shape)}, whose first dimension is not that of the {total} "
                "samples: return samples first, or leave joined_batches out and give the workers "
                "of a copy the same batch (fleet.data_index() of fleet.data_num())."
            )
    own = dict(zip(map(id, whole), _OwnSamples.apply(group, *whole), strict=True)) if whole else {}
    return map_tensors(outputs, lambda tensor: own.get(id(tensor), tensor), every=True)


class _OwnSamples(torch.autograd.Function):
    """This worker's samples of all outputs at once: workers may use different ones in their loss,
    but all must take part in gathering the gradients."""

    @staticmethod
    def forward(ctx: Any, group: Group, *whole: Tensor) -> tuple[Tensor, ...]:
        ctx.group, ctx.is_floating = group, [t.is_floating_point() for t in whole]
        own = tuple(t.chunk(group.size)[group.rank].clone() for t in whole)
        ctx.mark_non_differentiable(*(t for t in own if not t.is_floating_point()))
        return own

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        group: Group = ctx.group
        found = [
            torch.cat(group.all_gather(gradient)).div_(group.size) if is_floating else None
            for gradient, is_floating in zip(gradients, ctx.is_floating, strict=True)
        ]
        return None, *found
