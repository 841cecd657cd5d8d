"""Normalisations over the batch, a layer, groups of channels, images, neighbouring channels."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from fleetx import comm, torch_private
from fleetx.comm.sync_batch_norm import sync_batch_norm
from fleetx.static.graph.op_registry import op
from fleetx.static.ops.windows import to_channels_first, to_channels_last
from fleetx.static.shapes.infer_rules import checked, set_output
from fleetx.static.shapes.infer_shape import ShapeError, describe_inputs

_BATCH_NORM_ATTRS: dict[str, Any] = {
    "is_test": False,
    "momentum": 0.9,
    "epsilon": 1e-5,
    "data_layout": "NCHW",
    "fuse_with_relu": False,
    "use_global_stats": False,
    "trainable_statistics": False,
}


def _batch_norm(
    x: torch.Tensor,
    scale: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    variance: torch.Tensor,
    momentum_tensor: torch.Tensor | None,
    *,
    is_test: bool,
    momentum: float,
    epsilon: float,
    data_layout: str,
    use_global_stats: bool,
    trainable_statistics: bool,
    **unused: Any,
) -> tuple[Any, ...]:
    """Normalise over all axes but the channels; while training, move Mean and Variance in place.

    Unlike torch, the running variance follows the biased variance of the batch, and momentum is the
    share of the old value.
    """
    last = data_layout == "NHWC" and x.dim() > 2
    if last:
        x = to_channels_first(x)
    if use_global_stats or (is_test and not trainable_statistics):
        y = torch.batch_norm(x, scale, bias, mean, variance, False, 0.0, epsilon, True)
        return (to_channels_last(y) if last else y), mean, variance, None, None, None
    y, saved_mean, saved_inv_std, _, _ = torch_private.batch_norm_impl_index(
        x, scale, bias, None, None, True, 0.0, epsilon, True
    )
    with torch.no_grad():
        if momentum_tensor is None:
            step: Any = 1.0 - momentum
        else:
            step = 1.0 - momentum_tensor.to(mean.dtype).reshape(())
        mean.lerp_(saved_mean, step)
        variance.lerp_(saved_inv_std.pow(-2).sub_(epsilon), step)
    return (to_channels_last(y) if last else y), mean, variance, saved_mean, saved_inv_std, None


def _sync_batch_norm(
    x: torch.Tensor,
    scale: torch.Tensor,
    bias: torch.Tensor,
    mean: torch.Tensor,
    variance: torch.Tensor,
    momentum_tensor: torch.Tensor | None,
    *,
    ctx: Any,
    **settings: Any,
) -> tuple[Any, ...]:
    """Normalise by the statistics of all workers' batches while training."""
    testing = settings["is_test"] and not settings["trainable_statistics"]
    frozen = settings["use_global_stats"] or testing
    if frozen or ctx.is_meta or not comm.is_connected():
        return _batch_norm(x, scale, bias, mean, variance, momentum_tensor, **settings)
    epsilon = settings["epsilon"]
    last = settings["data_layout"] == "NHWC" and x.dim() > 2
    if last:
        x = to_channels_first(x)
    y, batch_mean, batch_variance, _ = sync_batch_norm(x, scale, bias, epsilon)
    with torch.no_grad():
        step = 1.0 - (settings["momentum"] if momentum_tensor is None else float(momentum_tensor))
        mean.lerp_(batch_mean.to(mean.dtype), step)
        variance.lerp_(batch_variance.to(variance.dtype), step)
    saved = (batch_variance + epsilon).rsqrt()
    return (to_channels_last(y) if last else y), mean, variance, batch_mean, saved, None


def _infer_batch_norm(op: Any, block: Any) -> None:
    """The output looks like the input, statistics have one value per channel.

    By rule, because running it on meta tensors would load torch's decompositions, which takes
    seconds.
    """
    x = block.var_recursive(op.input("X")[0])
    channels = x.shape[-1 if op.attr("data_layout") == "NHWC" else 1] if len(x.shape) > 1 else -1
    scale = block.var_recursive(op.input("Scale")[0])
    if len(x.shape) < 2 or (channels >= 0 and tuple(scale.shape) != (channels,)):
        raise ShapeError(f"op {op.type!r} does not accept {describe_inputs(op, block)}.")
    set_output(op, block, "Y", x.shape, x.dtype)
    for slot in ("MeanOut", "VarianceOut", "SavedMean", "SavedVariance"):
        set_output(op, block, slot, scale.shape, scale.dtype)


_BATCH_NORM: dict[str, Any] = {
    "inputs": "X Scale Bias Mean! Variance! MomentumTensor?!",
    "outputs": "Y MeanOut?=Mean VarianceOut?=Variance SavedMean? SavedVariance? ReserveSpace?",
    "infer": _infer_batch_norm,
}
op("batch_norm", attrs=_BATCH_NORM_ATTRS, **_BATCH_NORM)(_batch_norm)
op("sync_batch_norm", attrs=_BATCH_NORM_ATTRS, **_BATCH_NORM)(_sync_batch_norm)


@op("inplace_abn", attrs={**_BATCH_NORM_ATTRS, "use_sync_bn": False}, **_BATCH_NORM)
def _inplace_abn(
    *inputs: torch.Tensor, activation: str = "", alpha: float = 0.1, **settings: Any
) -> tuple[Any, ...]:
    """Normalise as batch_norm does, then apply an activation."""
    y, *rest = _batch_norm(*inputs, **settings)
    if activation == "leaky_relu":
        y = F.leaky_relu(y, alpha)
    elif activation == "elu":
        y = F.elu(y, alpha)
    return y, *rest


def _small_epsilon(op: Any, block: Any) -> str | None:
    epsilon = op.attrs["epsilon"]
    wrong = not 0 <= epsilon <= 0.001 + 1e-9  # a program stores single precision
    return f"epsilon is {epsilon}, but must be between 0 and 0.001." if wrong else None


@op(
    "layer_norm",
    inputs="X Scale? Bias?",
    outputs="Y Mean? Variance?",
    infer=checked(_small_epsilon),
)
def _layer_norm(
    x: torch.Tensor,
    scale: torch.Tensor | None,
    bias: torch.Tensor | None,
    *,
    epsilon: float = 1e-5,
    begin_norm_axis: int = 1,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    shape = x.shape[begin_norm_axis:]
    if len(shape) > 1:
        scale = None if scale is None else scale.reshape(shape)
        bias = None if bias is None else bias.reshape(shape)
    y, mean, inv_std = torch.native_layer_norm(x, shape, scale, bias, epsilon)
    return y, mean.reshape(-1), inv_std.reshape(-1).pow(-2).sub_(epsilon)


@op("group_norm", inputs="X Scale? Bias?", outputs="Y Mean? Variance?")
def _group_norm(
    x: torch.Tensor,
    scale: torch.Tensor | None,
    bias: torch.Tensor | None,
    *,
    epsilon: float = 1e-5,
    groups: int = 1,
    data_layout: str = "NCHW",
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    last = data_layout == "NHWC"
    if last:
        x = to_channels_first(x)
    batch, channels = x.shape[:2]
    if channels % groups:
        raise ValueError(f"{channels} channels cannot be divided into {groups} groups.")
    y, mean, inv_std = torch.native_group_norm(
        x.contiguous(), scale, bias, batch, channels, x.shape[2:].numel(), groups, epsilon
    )
    y = y.reshape(x.shape)
    return (to_channels_last(y) if last else y), mean, inv_std.pow(-2) - epsilon


@op("instance_norm", inputs="X Scale? Bias?", outputs="Y SavedMean? SavedVariance?")
def _instance_norm(
    x: torch.Tensor, scale: torch.Tensor | None, bias: torch.Tensor | None, *, epsilon: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    batch, channels = x.shape[:2]
    y, mean, inv_std = torch.native_group_norm(
        x.contiguous(), scale, bias, batch, channels, x.shape[2:].numel(), channels, epsilon
    )
    return y.reshape(x.shape), mean.reshape(-1), inv_std.reshape(-1)


class _DataNorm(torch.autograd.Function):
    """Scaling by running sums whose 'gradients' are the sums of the batch.

    A parameter server adds those to its totals, which is how the statistics are learnt.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        size: torch.Tensor,
        total: torch.Tensor,
        square: torch.Tensor,
        epsilon: float,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        means, scales = total / size, (size / square).sqrt()
        ctx.save_for_backward(x, means, scales)
        ctx.epsilon = epsilon
        ctx.mark_non_differentiable(means, scales)
        return (x - means) * scales, means, scales

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        x, means, scales = ctx.saved_tensors
        rows = torch.full_like(means, x.shape[0])
        squares = (x - means).square().sum(0) + rows * ctx.epsilon
        return grads[0] * scales, rows, x.sum(0), squares, None


@op(
    "data_norm",
    inputs="X BatchSize BatchSum BatchSquareSum scale_w? bias?",
    outputs="Y Means Scales",
    attrs={
        "slot_dim": -1,
        "summary_decay_rate": 0.9999999,
        "data_layout": "NCHW",
        "sync_stats": False,
    },
    infer=checked(_small_epsilon),
)
def _data_norm(
    x: torch.Tensor,
    size: torch.Tensor,
    total: torch.Tensor,
    square: torch.Tensor,
    scale: torch.Tensor | None,
    bias: torch.Tensor | None,
    *,
    epsilon: float = 1e-4,
    enable_scale_and_shift: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    y, means, scales = _DataNorm.apply(x, size, total, square, epsilon)
    if enable_scale_and_shift and scale is not None and bias is not None:
        y = y * scale + bias
    return y, means, scales


@op("spectral_norm", inputs="Weight U! V!")
def _spectral_norm(
    weight: torch.Tensor,
    u: torch.Tensor,
    v: torch.Tensor,
    *,
    dim: int = 0,
    power_iters: int = 1,
    eps: float = 1e-12,
) -> torch.Tensor:
    """Divide a weight by its largest singular value, found by power iteration from U and V."""
    matrix = weight.movedim(dim, 0).reshape(weight.shape[dim], -1)
    with torch.no_grad():
        for _ in range(power_iters):
            v = matrix.t().mv(u)
            v = v / (v.norm() + eps)
            u = matrix.mv(v)
            u = u / (u.norm() + eps)
    return weight / u.dot(matrix.mv(v))


def _odd_window(op: Any, block: Any) -> str | None:
    count = op.attrs["n"]
    return f"n is {count}, but must be odd." if count % 2 == 0 else None


@op("lrn", outputs="Out MidOut", infer=checked(_odd_window), attrs={"is_test": False})
def _lrn(
    x: torch.Tensor,
    *,
    n: int = 5,
    k: float = 2.0,
    alpha: float = 1e-4,
    beta: float = 0.75,
    data_format: str = "AnyLayout",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Divide by the squares of the n neighbouring channels."""
    last = data_format == "NHWC"
    squares = (to_channels_first(x) if last else x).square()
    before = (n - 1) // 2
    padded = F.pad(squares, [0, 0] * (x.dim() - 2) + [before, n - 1 - before])
    mid = k + alpha * padded.unfold(1, n, 1).sum(-1)
    if last:
        mid = to_channels_last(mid)
    return x * mid.pow(-beta), mid
