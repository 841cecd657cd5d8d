"""Layers on sequences of different lengths."""

from fleetx.static.layers import *  # noqa: F403
from paddle._coverage import only
from paddle.fluid.layers._narrow import narrow

__all__ = only(
    globals(),
    """
    sequence_concat sequence_conv sequence_enumerate sequence_expand sequence_expand_as
    sequence_first_step sequence_last_step sequence_mask sequence_pad sequence_pool
    sequence_reshape sequence_reverse sequence_scatter sequence_slice sequence_softmax
    sequence_unpad
    """,
)
narrow(globals())
