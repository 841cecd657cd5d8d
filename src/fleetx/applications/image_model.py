"""The base of classifiers of images: inputs, loss, accuracies, and loaders of ImageNet folders.

A folder has `train.txt` and `val.txt`, whose lines are "path label". Workers of a job read
different lines of them, in an order that depends on the epoch alone.
"""

from __future__ import annotations

from typing import Any

from fleetx.applications.static_model import StaticModel
from fleetx.applications.targets import Targets
from fleetx.applications.weights import weights_of
from fleetx.static import data
from fleetx.static.layers import (
    accuracy,
    mean,
    softmax,
    softmax_with_cross_entropy,
    transpose,
)
from fleetx.static.nn import Layer
from fleetx.static.variable import Variable

LAYOUTS = ("NCHW", "NHWC")


class ImageModel(StaticModel):
    """A classifier of square images; subclasses say which layers it has."""

    def __init__(self, data_layout: str, *, class_dim: int, image_size: int) -> None:
        if data_layout not in LAYOUTS:
            raise ValueError(f"data_layout must be one of {list(LAYOUTS)}, but is {data_layout!r}.")
        for name, value in (("class_dim", class_dim), ("image_size", image_size)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, but is {value!r}.")
        self.data_layout, self.class_dim, self.image_size = data_layout, class_dim, image_size
        super().__init__()

    def make_layer(self) -> Layer:
        """Return the layers from images [N, 3, H, W] to scores; mark checkpoints."""
        raise NotImplementedError(f"{type(self).__name__} does not define make_layer().")

    def keep_output_of(self, layer: Layer) -> None:
        """Let recompute keep what a layer returns."""

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
        # The transpose of NHWC is what torch calls the format channels_last: no copy is made.
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
