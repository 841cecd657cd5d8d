"""Dropout: elements (or whole slices) set to zero at random while training."""

from __future__ import annotations

import torch

from fleetx.static.graph.op_registry import op
from fleetx.static.shapes.infer_rules import same_as

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
    attrs={**_ATTRS},
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
    axis: list[int] = [0],
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Dropout with one decision per index of the given axes, shared along the others."""
    upscale = dropout_implementation == "upscale_in_train"
    if is_test:
        return (x if upscale else x * (1.0 - dropout_prob)), None
    shape = [n if i in axis else 1 for i, n in enumerate(x.shape)]
    generator = _generator(x, seed_tensor, fix_seed, seed)
    out, mask = _drop(x, shape, dropout_prob, upscale, generator)
    return out, mask.expand(x.shape)


def _dropout_grad(
    x: torch.Tensor | None,
    seed_tensor: torch.Tensor | None,
    out: torch.Tensor | None,
    mask: torch.Tensor | None,
    out_grad: torch.Tensor,
    mask_grad: torch.Tensor | None,
    *,
    dropout_prob: float,
    is_test: bool,
    dropout_implementation: str,
) -> tuple[torch.Tensor, None]:
    """Pass the gradient where the forward pass kept elements: drawing again would drop others."""
    upscale = dropout_implementation == "upscale_in_train"
    if is_test or mask is None:
        return (out_grad if upscale else out_grad * (1.0 - dropout_prob)), None
    grad = out_grad * mask
    return (grad / (1.0 - dropout_prob) if upscale and dropout_prob < 1.0 else grad), None


for _type in ("dropout", "dropout_nd"):
    op(
        f"{_type}_grad",
        inputs="X? Seed? Out? Mask? Out@GRAD Mask@GRAD?",
        outputs="X@GRAD Seed@GRAD?",
        attrs=_ATTRS if _type == "dropout" else {**_ATTRS, "axis": [0]},
        grad=None,
        infer=same_as("X", "X@GRAD"),
    )(_dropout_grad)
