"""ImageNet photographs to training samples by Pillow."""

import numpy as np
from images_plain import SIZE, normalized, random_part, run
from PIL import Image


def picture(path):
    """Return the sample of a file."""
    with Image.open(path) as file:
        image = file.convert("RGB")
    left, top, width, height = random_part(*image.size)
    box = (left, top, left + width, top + height)
    image = image.resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=box)
    if np.random.randint(0, 2) == 1:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return normalized(np.asarray(image))


run(picture)
