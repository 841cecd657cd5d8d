"""Dropout: elements (or whole slices) set to zero at random while training."""

from __future__ import annotations

import torch

from fleetx.static.graph.op_registry import get_op, op
from fleetx.static.shapes.infer_rules import same_as


def _generator(
    x: torch.Tensor, seed_tensor: torch.Tensor | None, fix_seed: bool, seed: int
) -> torch.Generator | None:
    """Return a freshly seeded generator if the program fixes the seed, else None."""
    if x.is_meta:
        return None
    if seed_tensor is not None:
        seed = int(seed_tensor)
    elif not fix_seed:
        return None
    return torch.Generator(x.device).manual_seed(seed)


def _dropout(
    x: torch.Tensor,
    seed_tensor: torch.Tensor | None,
    *,
    dropout_prob: float = 0.5,
    is_test: bool = False,
    fix_seed: bool = False,
    seed: int = 0,
    dropout_implementation: str = "downgrade_in_infer",
    axis: list[int] | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Drop elements; with `axis`, decide once per index of these axes, for all along the others."""
    upscale = dropout_implementation == "upscale_in_train"
    if is_test:
        return (x if upscale else x * (1.0 - dropout_prob)), None
    shape = [n if axis is None or i in axis else 1 for i, n in enumerate(x.shape)]
    mask = torch.empty(shape, dtype=torch.uint8, device=x.device)
    mask.bernoulli_(1.0 - dropout_prob, generator=_generator(x, seed_tensor, fix_seed, seed))
    if upscale and dropout_prob < 1.0:
        out = x * mask.to(x.dtype).mul_(1.0 / (1.0 - dropout_prob))
    else:
        out = x * mask
    return out, mask if axis is None else mask.expand(x.shape)


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


for _type, _more in (("dropout", {}), ("dropout_nd", {"axis": [0]})):
    op(_type, inputs="X Seed?!", outputs="Out Mask?", attrs=_more, random=True)(_dropout)
    op(
        f"{_type}_grad",
        inputs="X? Seed? Out? Mask? Out@GRAD Mask@GRAD?",
        outputs="X@GRAD Seed@GRAD?",
        attrs=get_op(_type).attrs,
        grad=None,
        infer=same_as("X", "X@GRAD"),
    )(_dropout_grad)
