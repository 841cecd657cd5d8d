"""Ops that draw random numbers. A seed other than 0 gives the same numbers in every run."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fleetx.static.graph.dtypes import to_torch
from fleetx.static.graph.op_registry import Attr, Long, detached_op, op
from fleetx.static.ops.creation import BATCH_ATTRS, batch_rule, like_batch, resolve_shape
from fleetx.static.shapes.infer_rules import same_as, shape_from_attr

_SHAPE_SLOTS = "ShapeTensor? ShapeTensorList*?"
# A standard normal value lies within two standard deviations with this probability.
_TWO_SIGMA = math.erf(math.sqrt(2.0))


def generator(seed: int, device: torch.device) -> torch.Generator | None:
    """Return a generator for an op's own seed, or None for torch's default one."""
    if seed == 0 or device.type == "meta":
        return None
    return torch.Generator(device).manual_seed(seed)


def _empty(shape: list[int], dtype: int, device: torch.device) -> Tensor:
    return torch.empty(shape, dtype=to_torch(dtype), device=device)


def _set_diagonal(out: Tensor, num: int, step: int, value: float) -> Tensor:
    if num:
        out.view(-1)[torch.arange(num, device=out.device) * (step + 1)] = value
    return out


def _uniform(
    size: list[int],
    device: torch.device,
    *,
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
    diag_num: int = 0,
    diag_step: int = 0,
    diag_val: float = 1.0,
    dtype: int,
) -> Tensor:
    out = _empty(size, dtype, device)
    out.uniform_(min, max, generator=generator(seed, device))
    return _set_diagonal(out, diag_num, diag_step, diag_val)


def _normal(
    size: list[int],
    device: torch.device,
    *,
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: int,
) -> Tensor:
    return _empty(size, dtype, device).normal_(mean, std, generator=generator(seed, device))


def _register(type: str, draw: Any) -> None:
    """Register an op that draws a tensor of a shape, and one with the batch size of another."""

    def of_shape(
        shape_tensor: Tensor | None,
        shape_list: list[Tensor],
        *,
        shape: list[int],
        ctx: Any,
        **settings: Any,
    ) -> Tensor:
        return draw(resolve_shape(shape, shape_tensor, shape_list), ctx.device, **settings)

    def like_another(
        ref: Tensor,
        *,
        shape: list[int],
        input_dim_idx: int,
        output_dim_idx: int,
        lod: Any,
        **settings: Any,
    ) -> Tensor:
        size = like_batch(ref, shape, input_dim_idx, output_dim_idx, lod)
        return draw(size, ref.device, **settings)

    options: dict[str, Any] = {"grad": None, "random": True}
    attrs = draw.__kwdefaults__
    whole = {"shape": Attr("LONGS", []), **attrs, "dtype": 5}
    op(type, inputs=_SHAPE_SLOTS, attrs=whole, infer=shape_from_attr(), **options)(of_shape)
    like = {**BATCH_ATTRS, **attrs}
    options |= {"inputs": "Input", "attrs": like, "infer": batch_rule, "lod": "none"}
    op(f"{type}_batch_size_like", **options)(like_another)


_register("uniform_random", _uniform)
_register("gaussian_random", _normal)


@op("truncated_gaussian_random", inputs="", grad=None, random=True, infer=shape_from_attr())
def truncated_gaussian_random(
    *,
    shape: list[int] = [],
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: int = 5,
    ctx: Any,
) -> Tensor:
    """Normal values within two standard deviations of the mean, by inverting the distribution."""
    out = _empty(shape, dtype, ctx.device)
    out.uniform_(-_TWO_SIGMA, _TWO_SIGMA, generator=generator(seed, out.device))
    # The last rounding error of erfinv must not leave the interval.
    out.erfinv_().mul_(math.sqrt(2.0)).clamp_(-2.0, 2.0)
    return out.mul_(std).add_(mean)


@op("randint", inputs=_SHAPE_SLOTS, grad=None, random=True, infer=shape_from_attr())
def randint(
    shape_tensor: Tensor | None,
    shape_list: list[Tensor],
    *,
    shape: list[Long] = [],
    low: int = 0,
    high: int = 0,
    dtype: int = 3,
    seed: int = 0,
    ctx: Any,
) -> Tensor:
    """Whole numbers from low to high - 1."""
    out = _empty(resolve_shape(shape, shape_tensor, shape_list), dtype, ctx.device)
    return out.random_(low, high, generator=generator(seed, out.device))


@op("randperm", inputs="", grad=None, random=True)
def randperm(*, n: int = 0, dtype: int = 3, seed: int = 0, ctx: Any) -> Tensor:
    """The numbers 0 to n - 1 in random order."""
    own = generator(seed, ctx.device)
    if dtype in (2, 3):
        return torch.randperm(n, generator=own, dtype=to_torch(dtype), device=ctx.device)
    return torch.randperm(n, generator=own, device=ctx.device).to(to_torch(dtype))


@op("bernoulli", grad=None, random=True, infer=same_as())
def bernoulli(x: Tensor, *, seed: int = 0) -> Tensor:
    """1 with probability X, else 0."""
    return torch.bernoulli(x, generator=generator(seed, x.device))


@op("multinomial", grad=None, random=True)
def multinomial(
    x: Tensor, *, num_samples: int = 1, replacement: bool = False, seed: int = 0
) -> Tensor:
    """Indices drawn with the weights in the last dimension of X."""
    return torch.multinomial(x, num_samples, replacement, generator=generator(seed, x.device))


@detached_op("sampling_id", random=True)
def sampling_id(x: Tensor, *, min: float = 0.0, max: float = 1.0, seed: int = 0) -> Tensor:
    """One column per row, drawn with the row's probabilities."""
    draw = torch.empty(x.shape[:1], dtype=x.dtype, device=x.device)
    draw.uniform_(min, max, generator=generator(seed, x.device))
    found = torch.searchsorted(x.cumsum(1), draw.unsqueeze(1), right=True).squeeze(1)
    return found.clamp(max=x.shape[1] - 1)


@op("seed", inputs="", grad=None, random=True)
def seed_(*, seed: int = 0, ctx: Any) -> Tensor:
    """The seed itself, or a fresh one where it is 0."""
    if seed or ctx.is_meta:
        return torch.full((1,), seed, dtype=torch.int32, device=ctx.device)
    return torch.randint(1, 2**31 - 1, (1,), dtype=torch.int32, device=ctx.device)
