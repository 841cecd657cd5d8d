"""Optimizers with weight decay that stays out of the gradients."""

from fleetx.static.optimizer.decoupled import extend_with_decoupled_weight_decay
