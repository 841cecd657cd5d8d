"""Creating, joining and converting variables."""

from fleetx.static.layers import *  # noqa: F403
from paddle._coverage import only
from paddle.fluid.layers._narrow import narrow

__all__ = only(
    globals(),
    """
    arange argmax argmin argsort assign cast concat create_global_var create_parameter
    create_tensor diag eye fill_constant fill_constant_batch_size_like full full_like
    has_inf has_nan isfinite kron linspace ones ones_like range reverse sums
    tensor_array_to_tensor trace tril triu zeros zeros_like
    """,
)
narrow(globals())
