"""Images: loading, transforms, data sets and models."""

from fleetx.data.image import get_image_backend, image_load, set_image_backend
from paddle._coverage import exported
from paddle.vision import datasets, models, ops, transforms

__all__ = exported(globals(), modules=True)
