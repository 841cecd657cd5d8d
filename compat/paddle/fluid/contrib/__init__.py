"""What Paddle 1.x kept apart as contributed."""

from fleetx.static.optimizer.decoupled import extend_with_decoupled_weight_decay
from paddle.fluid.contrib import extend_optimizer, layers, mixed_precision
from paddle.fluid.contrib.layers import *  # noqa: F403
from paddle.fluid.contrib.layers import __all__ as _layer_names

__all__ = [*_layer_names, "extend_optimizer", "extend_with_decoupled_weight_decay", "layers"]
__all__ += ["mixed_precision"]
