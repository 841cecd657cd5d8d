"""Functions on images."""

from fleetx.data.image import *  # noqa: F403
from paddle._coverage import only

__all__ = only(
    globals(),
    """
    adjust_brightness adjust_contrast adjust_hue adjust_saturation center_crop crop hflip
    normalize pad resize rotate to_grayscale to_tensor vflip
    """,
)
