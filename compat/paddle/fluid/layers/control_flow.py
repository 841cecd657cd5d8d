"""Loops, branches, arrays and comparison."""

from fleetx.static.layers import *  # noqa: F403
from fleetx.static.layers.control_flow import (
    BlockGuard,
    ConditionalBlock,
    ConditionalBlockGuard,
    select_input,
    select_output,
)
from fleetx.static.layers.while_loop import WhileGuard
from paddle._coverage import only
from paddle.fluid.layers._narrow import narrow

__all__ = only(
    globals(),
    """
    Assert BlockGuard ConditionalBlock ConditionalBlockGuard DynamicRNN IfElse Print
    StaticRNN Switch While WhileGuard array_length array_read array_to_lod_tensor
    array_write case cond create_array equal greater_equal greater_than increment is_empty
    less_equal less_than lod_rank_table lod_tensor_to_array max_sequence_len
    merge_lod_tensor not_equal reorder_lod_tensor_by_rank select_input select_output
    shrink_memory split_lod_tensor switch_case while_loop
    """,
)
narrow(globals())
