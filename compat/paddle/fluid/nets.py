"""Small nets of several layers."""

from fleetx.static.nets import (
    glu,
    img_conv_group,
    scaled_dot_product_attention,
    sequence_conv_pool,
    simple_img_conv_pool,
)
from paddle._coverage import exported, missing

__all__ = exported(globals())
__getattr__ = missing(__name__)
