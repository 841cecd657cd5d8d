"""ImageNet photographs to training samples by OpenCV, as the document's reader does it."""

import cv2
import numpy as np
from images_plain import SIZE, normalized, random_part, run

cv2.setNumThreads(1)


def picture(path):
    """Return the sample of a file."""
    image = cv2.imread(path)
    left, top, width, height = random_part(image.shape[1], image.shape[0])
    image = cv2.resize(image[top : top + height, left : left + width], (SIZE, SIZE))
    if np.random.randint(0, 2) == 1:
        image = image[:, ::-1, :]
    return normalized(image[:, :, ::-1])


run(picture)
