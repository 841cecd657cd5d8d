"""Optimizers."""

from fleetx.static.optimizer import *  # noqa: F403

del AdamW, DGCMomentum, extend_with_decoupled_weight_decay  # noqa: F821 - of 2.x, and of others
