"""Images as the data sets' readers use them."""

from fleetx.data.bgr_image import *  # noqa: F403
from paddle._coverage import exported, missing

__all__ = exported(globals())
__getattr__ = missing(__name__)
