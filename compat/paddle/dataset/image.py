"""Images as the data sets' readers use them."""

from fleetx.data.bgr_image import (
    center_crop,
    left_right_flip,
    load_and_transform,
    load_image,
    load_image_bytes,
    random_crop,
    resize_short,
    simple_transform,
    to_chw,
)
from paddle._coverage import exported, missing

__all__ = exported(globals())
__getattr__ = missing(__name__)
