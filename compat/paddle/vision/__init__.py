"""Images: loading, transforms, data sets and models."""

from fleetx.data.image import get_image_backend, image_load, set_image_backend
from paddle._coverage import missing
from paddle.vision import datasets, models, transforms

__all__ = [
    "datasets",
    "get_image_backend",
    "image_load",
    "models",
    "set_image_backend",
    "transforms",
]

__getattr__ = missing(__name__)
