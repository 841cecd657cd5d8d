"""Optimizers with weight decay that stays out of the gradients."""

from fleetx.static.optimizer.decoupled import extend_with_decoupled_weight_decay
from paddle._coverage import missing

__all__ = ["extend_with_decoupled_weight_decay"]

__getattr__ = missing(__name__)
