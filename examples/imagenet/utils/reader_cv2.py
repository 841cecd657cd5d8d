"""Readers of an ImageNet folder (train.txt, val.txt and their pictures), as functions of Paddle.

    reader = train(settings=args, data_dir="./ImageNet", pass_id_as_seed=0)
    for image, label in reader(): ...

`settings` has the options of the training script: image_shape, lower_scale, lower_ratio,
upper_ratio, resize_short_size. Pictures are decoded by fleetx.data, not by OpenCV.
"""

from collections.abc import Callable, Iterator
from typing import Any

from fleetx.data.imagenet import ImageNet
from fleetx.data.imagenet_augment import Augment

Reader = Callable[[], Iterator[Any]]
DATA_DIR = "./data/ILSVRC2012/"


def augment_of(settings: Any) -> Augment:
    """Return the augmentation settings of the options."""
    sides = [int(side) for side in str(settings.image_shape).split(",")]
    if len(sides) != 3 or sides[0] != 3 or sides[1] != sides[2]:
        raise ValueError(f"--image_shape {settings.image_shape!r} must be 3,size,size.")
    usual = Augment()
    short = getattr(settings, "resize_short_size", usual.resize_short_size)
    return Augment(
        crop_size=sides[1],
        lower_scale=getattr(settings, "lower_scale", usual.lower_scale),
        lower_ratio=getattr(settings, "lower_ratio", usual.lower_ratio),
        upper_ratio=getattr(settings, "upper_ratio", usual.upper_ratio),
        resize_short_size=max(short, sides[1]),
    )


def _reader(settings: Any, data_dir: str, phase: str, seed: int = 0) -> Reader:
    classes = getattr(settings, "class_dim", 1000)
    data = ImageNet(data_dir, phase, augment=augment_of(settings), seed=seed, num_classes=classes)
    return data.reader("samples")


def train(settings: Any, data_dir: str = DATA_DIR, pass_id_as_seed: int = 0) -> Reader:
    """Return a reader of this worker's training pictures, in the order of a pass."""
    return _reader(settings, data_dir, "train", pass_id_as_seed)


def val(settings: Any, data_dir: str = DATA_DIR) -> Reader:
    """Return a reader of this worker's validation pictures, in the order of the list."""
    return _reader(settings, data_dir, "val")
