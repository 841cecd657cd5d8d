"""Functions of every element."""

from fleetx.static.layers import *  # noqa: F403
from paddle._coverage import only
from paddle.fluid.layers._narrow import narrow

__all__ = only(
    globals(),
    """
    abs acos asin atan ceil cos cosh cumsum erf exp floor gelu hard_shrink log1p logsigmoid
    pow reciprocal round rsqrt sigmoid sin sinh softplus softshrink softsign sqrt square
    tanh tanh_shrink thresholded_relu uniform_random
    """,
)
narrow(globals())
