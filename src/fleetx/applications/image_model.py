"""The base of image classifiers: inputs, loss, accuracies, and loaders of ImageNet folders.

A folder has `train.txt` and `val.txt`, whose lines are "path label". Workers of a job read disjoint
parts of them, in an order that depends only on the epoch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fleetx.applications.named_targets import Targets
from fleetx.applications.static_model import StaticModel
from fleetx.applications.weights import weights_of
from fleetx.data.imagenet import ImageNet
from fleetx.data.imagenet_augment import Augment
from fleetx.static import data
from fleetx.static.graph.variable import Variable
from fleetx.static.layers import (
    accuracy,
    mean,
    softmax,
    softmax_with_cross_entropy,
    transpose,
)
from fleetx.static.nn import Layer
from fleetx.static.readers.generator_loader import GeneratorLoader

LAYOUTS = ("NCHW", "NHWC")
PHASES = ("train", "val")


class ImageModel(StaticModel):
    """A classifier of square images; subclasses define its layers."""

    def __init__(self, data_layout: str, *, class_dim: int, image_size: int) -> None:
        if data_layout not in LAYOUTS:
            raise ValueError(f"data_layout must be one of {list(LAYOUTS)}, but is {data_layout!r}.")
        for name, value in (("class_dim", class_dim), ("image_size", image_size)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, but is {value!r}.")
        self.data_layout, self.class_dim, self.image_size = data_layout, class_dim, image_size
        super().__init__()

    def make_layer(self) -> Layer:
        """Return the layers from images [N, 3, H, W] to scores, and mark checkpoints."""
        raise NotImplementedError(f"{type(self).__name__} does not define make_layer().")

    def keep_output_of(self, layer: Layer) -> None:
        """Make the output of a layer a checkpoint for recompute."""

        def note(_: Layer, __: Any, output: Variable) -> None:
            self.checkpoints.append(output.name)

        layer.register_forward_post_hook(note)

    def costs(self, scores: Variable, label: Variable) -> Variable:
        """Return the loss of each image."""
        return softmax_with_cross_entropy(scores, label)

    def build(self) -> None:
        """Add the network, its loss and its accuracies."""
        size = [self.image_size, self.image_size]
        shape = [3, *size] if self.data_layout == "NCHW" else [*size, 3]
        image = data("feed_image", [None, *shape], "float32")
        label = data("feed_label", [None, 1], "int64")
        # The transpose of NHWC is torch's channels_last format: no copy is made.
        planes = image if self.data_layout == "NCHW" else transpose(image, [0, 3, 1, 2])
        layer = self.make_layer()
        scores = layer(planes)
        self.inputs = [image, label]
        self.weights = weights_of(layer)
        self.loss = mean(self.costs(scores, label))
        shares = softmax(scores)
        five = min(5, self.class_dim)
        self.target = Targets(
            {"acc1": accuracy(shares, label, 1), "acc5": accuracy(shares, label, five)}
        )

    # -- data ------------------------------------------------------------------------------------
    def get_train_dataloader(
        self,
        local_path: str | os.PathLike[str],
        batch_size: int = 32,
        shuffle: bool = True,
        use_dali: bool = False,
        *,
        num_workers: int = 0,
    ) -> GeneratorLoader:
        """Return a loader of the images in `local_path/train.txt`, randomly cropped and flipped.

        All workers run the same number of steps per epoch: if the number of images is not divisible
        by that of the workers, some are read twice. ``num_workers`` processes prepare images; by
        default a thread does.
        """
        path = Path(local_path) / "train.txt"
        return self._image_loader(path, "train", batch_size, shuffle, use_dali, num_workers)

    def get_val_dataloader(
        self,
        local_path: str | os.PathLike[str],
        batch_size: int = 32,
        shuffle: bool = False,
        use_dali: bool = False,
        *,
        num_workers: int = 0,
    ) -> GeneratorLoader:
        """Return a loader of the images in `local_path/val.txt`: the centre of each, once."""
        path = Path(local_path) / "val.txt"
        return self._image_loader(path, "val", batch_size, shuffle, use_dali, num_workers)

    def load_imagenet_from_file(
        self,
        filelist: str | os.PathLike[str],
        batch_size: int = 32,
        phase: str = "train",
        shuffle: bool = True,
        use_dali: bool = False,
        *,
        num_workers: int = 0,
    ) -> GeneratorLoader:
        """Return a loader of the images in a list; `phase="val"` is not shuffled."""
        shuffle = shuffle and phase == "train"
        return self._image_loader(Path(filelist), phase, batch_size, shuffle, use_dali, num_workers)

    def _image_loader(
        self,
        filelist: Path,
        phase: str,
        batch_size: int,
        shuffle: bool,
        use_dali: bool,
        num_workers: int,
    ) -> GeneratorLoader:
        if use_dali:
            raise ValueError(
                "use_dali=True needs NVIDIA DALI, which FleetX does not support: omit it and load "
                "images in processes with num_workers=2 or more."
            )
        if phase not in PHASES:
            raise ValueError(f"phase must be one of {list(PHASES)}, but is {phase!r}.")
        augment = Augment(
            crop_size=self.image_size, resize_short_size=round(self.image_size * 256 / 224)
        )
        images = ImageNet(
            filelist.parent,
            phase,
            batch_size=batch_size,
            # With the default name, the reader finds the list and the images itself.
            list_file=None if filelist.name == f"{phase}.txt" else filelist,
            shuffle=shuffle,
            sharding="paddle" if phase == "train" else "once",
            augment=augment,
            num_classes=self.class_dim,
        )
        read = images.reader("batches", num_workers=num_workers)
        if self.data_layout == "NHWC":
            read = _channels_last(read)
        return self.batch_loader(read)


def _channels_last(read: Callable[[], Iterator[Any]]) -> Callable[[], Iterator[Any]]:
    def turned() -> Iterator[Any]:
        for images, labels in read():
            yield images.transpose(0, 2, 3, 1), labels

    return turned
