"""Functions of every element."""

from fleetx.static.layers import (
    abs,
    acos,
    asin,
    atan,
    ceil,
    cos,
    cosh,
    cumsum,
    erf,
    exp,
    floor,
    gelu,
    hard_shrink,
    log1p,
    logsigmoid,
    pow,
    reciprocal,
    round,
    rsqrt,
    sigmoid,
    sin,
    sinh,
    softplus,
    softshrink,
    softsign,
    sqrt,
    square,
    tanh,
    tanh_shrink,
    thresholded_relu,
    uniform_random,
)
from paddle._coverage import exported, missing
from paddle.fluid.layers._narrow import narrow

narrow(globals())
__all__ = exported(globals())
__getattr__ = missing(__name__)
