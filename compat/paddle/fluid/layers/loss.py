"""Losses."""

from fleetx.static.layers import (
    bpr_loss,
    center_loss,
    cross_entropy,
    edit_distance,
    huber_loss,
    kldiv_loss,
    margin_rank_loss,
    mse_loss,
    npair_loss,
    rank_loss,
    sigmoid_cross_entropy_with_logits,
    softmax_with_cross_entropy,
    square_error_cost,
    teacher_student_sigmoid_loss,
)
from paddle._coverage import missing

__all__ = [
    "bpr_loss",
    "center_loss",
    "cross_entropy",
    "edit_distance",
    "huber_loss",
    "kldiv_loss",
    "margin_rank_loss",
    "mse_loss",
    "npair_loss",
    "rank_loss",
    "sigmoid_cross_entropy_with_logits",
    "softmax_with_cross_entropy",
    "square_error_cost",
    "teacher_student_sigmoid_loss",
]

__getattr__ = missing(__name__)
