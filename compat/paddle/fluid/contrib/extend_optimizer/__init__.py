"""Optimizers with decoupled weight decay."""

from fleetx.static.optimizer.decoupled import extend_with_decoupled_weight_decay
