"""Images as the data sets' readers use them."""

from fleetx.data.bgr_image import *  # noqa: F403
