"""Loading of images."""

from fleetx.data.image import get_image_backend, image_load, set_image_backend
from paddle._coverage import missing

__all__ = ["get_image_backend", "image_load", "set_image_backend"]

__getattr__ = missing(__name__)
