"""Learning rates that change with the step, as layers."""

from fleetx.static.layers import *  # noqa: F403
from fleetx.static.layers import decay_step_counter as _decay_step_counter
from paddle._coverage import only

__all__ = only(
    globals(),
    """
    cosine_decay exponential_decay inverse_time_decay linear_lr_warmup natural_exp_decay
    noam_decay piecewise_decay polynomial_decay
    """,
)
