"""Loops, branches, arrays and comparison."""

from fleetx.static.layers import (
    Assert,
    DynamicRNN,
    Print,
    StaticRNN,
    array_length,
    array_read,
    array_to_lod_tensor,
    array_write,
    create_array,
    lod_rank_table,
    lod_tensor_to_array,
    max_sequence_len,
    reorder_lod_tensor_by_rank,
    shrink_memory,
)
from fleetx.static.layers.compare import *  # noqa: F403
from fleetx.static.layers.control_flow import *  # noqa: F403
from fleetx.static.layers.control_flow import (
    BlockGuard,
    ConditionalBlock,
    ConditionalBlockGuard,
    WhileGuard,
    select_input,
    select_output,
)
from fleetx.static.layers.switch import *  # noqa: F403
from paddle._coverage import exported, missing
from paddle.fluid.layers._narrow import narrow

narrow(globals())
__all__ = exported(globals())
__getattr__ = missing(__name__)
