"""Dropout: elements (or whole slices) set to zero at random while training."""

from __future__ import annotations

import torch

from fleetx.static.op_registry import op

_ATTRS = {
    "dropout_prob": 0.5,
    "is_test": False,
    "fix_seed": False,
    "seed": 0,
    "dropout_implementation": "downgrade_in_infer",
}


def _generator(
    x: torch.Tensor, seed_tensor: torch.Tensor | None, fix_seed: bool, seed: int
) -> torch.Generator | None:
    """Return a generator that starts anew in every call, where the program fixes the seed."""
    if x.is_meta:
        return None
    if seed_tensor is not None:
        seed = int(seed_tensor)
    elif not fix_seed:
        return None
    return torch.Generator(x.device).manual_seed(seed)


def _drop(
    x: torch.Tensor,
    mask_shape: torch.Size | list[int],
    prob: float,
    upscale: bool,
    generator: torch.Generator | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    mask = torch.empty(mask_shape, dtype=torch.uint8, device=x.device)
    mask.bernoulli_(1.0 - prob, generator=generator)
    if upscale and prob < 1.0:
        return x * mask.to(x.dtype).mul_(1.0 / (1.0 - prob)), mask
    return x * mask, mask


@op("dropout", inputs="X Seed?", outputs="Out Mask?", attrs=_ATTRS, no_grad="Seed", random=True)
def _dropout(
    x: torch.Tensor,
    seed_tensor: torch.Tensor | None,
    *,
    dropout_prob: float,
    is_test: bool,
    fix_seed: bool,
    seed: int,
    dropout_implementation: str,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    upscale = dropout_implementation == "upscale_in_train"
    if is_test:
        return (x if upscale else x * (1.0 - dropout_prob)), None
    generator = _generator(x, seed_tensor, fix_seed, seed)
    return _drop(x, x.shape, dropout_prob, upscale, generator)


@op(
    "dropout_nd",
    inputs="X Seed?",
    outputs="Out Mask?",
    attrs={**_ATTRS, "axis": [0]},
    no_grad="Seed",
    random=True,
)
def _dropout_nd(
    x: torch.Tensor,
    seed_tensor: torch.Tensor | None,
    *,
    dropout_prob: float,
    is_test: bool,
    fix_seed: bool,
    seed: int,
    dropout_implementation: str,
    axis: list[int],
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Dropout with one decision per index of the given axes, shared along the others."""
    upscale = dropout_implementation == "upscale_in_train"
    if is_test:
        return (x if upscale else x * (1.0 - dropout_prob)), None
    shape = [n if i in axis else 1 for i, n in enumerate(x.shape)]
    generator = _generator(x, seed_tensor, fix_seed, seed)
    out, mask = _drop(x, shape, dropout_prob, upscale, generator)
    return out, mask.expand(x.shape)
