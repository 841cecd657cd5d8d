"""Loading of images."""

from fleetx.data.image import get_image_backend, image_load, set_image_backend
