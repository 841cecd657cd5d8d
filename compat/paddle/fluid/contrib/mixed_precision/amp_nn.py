"""The two ops of the loss scale as layers; `decorate` writes them itself."""

from fleetx.static.mixed_precision.scale_ops import check_finite_and_unscale, update_loss_scaling

__all__ = ["check_finite_and_unscale", "update_loss_scaling"]
