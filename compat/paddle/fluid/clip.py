"""Clipping of gradients and errors."""

from fleetx.static.clip import (
    BaseErrorClipAttr,
    ClipGradByGlobalNorm,
    ClipGradByNorm,
    ClipGradByValue,
    ErrorClipByValue,
    GradientClipBase,
    GradientClipByGlobalNorm,
    GradientClipByNorm,
    GradientClipByValue,
    append_gradient_clip_ops,
    error_clip_callback,
    set_gradient_clip,
)
