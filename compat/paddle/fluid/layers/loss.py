"""Losses."""

from fleetx.static.layers import *  # noqa: F403
from paddle._coverage import only
from paddle.fluid.layers._narrow import narrow

__all__ = only(
    globals(),
    """
    bpr_loss center_loss cross_entropy edit_distance hsigmoid huber_loss kldiv_loss
    margin_rank_loss mse_loss nce npair_loss rank_loss sampled_softmax_with_cross_entropy
    sigmoid_cross_entropy_with_logits softmax_with_cross_entropy square_error_cost
    teacher_student_sigmoid_loss warpctc
    """,
)
narrow(globals())
