"""ImageNet with the augmentation that a script's options describe, by fleetx's reader.

The name is that of the document's file; the pictures are decoded by simplejpeg, not OpenCV.
"""

import argparse
from collections.abc import Callable, Iterator

from fleetx.data.imagenet import ImageNet
from fleetx.data.imagenet_augment import Augment


def train(
    settings: argparse.Namespace, data_dir: str, pass_id_as_seed: int = 0
) -> Callable[[], Iterator]:
    """Return a reader of (picture, label): random parts of the pictures of data_dir/train.txt."""
    return _reader(settings, data_dir, "train", pass_id_as_seed)


def val(settings: argparse.Namespace, data_dir: str) -> Callable[[], Iterator]:
    """Return a reader of (picture, label): the middle of the pictures of data_dir/val.txt."""
    return _reader(settings, data_dir, "val", 0)


def _reader(
    settings: argparse.Namespace, data_dir: str, phase: str, seed: int
) -> Callable[[], Iterator]:
    augment = Augment(
        crop_size=int(settings.image_shape.split(",")[-1]),
        lower_scale=settings.lower_scale,
        lower_ratio=settings.lower_ratio,
        upper_ratio=settings.upper_ratio,
        resize_short_size=settings.resize_short_size,
    )
    pictures = ImageNet(
        data_dir, phase, seed=seed, augment=augment, num_classes=settings.class_dim
    )  # fmt: skip
    return pictures.reader("samples")
