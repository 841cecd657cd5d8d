"""Programs in half precision, step by step; `decorate` does all of it."""

from typing import Any

from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.program import Program
from fleetx.static.inspection.searching import (
    find_op_index,
    find_true_post_op,
    find_true_prev_op,
)
from fleetx.static.mixed_precision.loss_scale_layer import update_loss_scaling
from fleetx.static.mixed_precision.program_casts import cast_program

__all__ = ["find_op_index", "find_true_post_op", "find_true_prev_op"]
__all__ += ["rewrite_program", "update_loss_scaling"]


def rewrite_program(main_prog: Program, amp_lists: Any) -> None:
    """Cast the ops of a program, before its backward pass, to float16 according to the lists."""
    cast_program(main_prog, amp_lists, VarType.FP16)
