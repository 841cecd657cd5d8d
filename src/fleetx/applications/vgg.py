"""VGG as a static model (`VGG16`) and as a module (`VGG`).

Simonyan and Zisserman, "Very Deep Convolutional Networks", 2014. The static network is
`fleetx.static.models.VGG`; the module has the keys of torchvision, the program those of Paddle 2.
"""

from __future__ import annotations

import torch
from torch import nn

from fleetx.applications.image_model import ImageModel
from fleetx.static.models import vgg as static_vgg
from fleetx.static.nn import Layer, MaxPool2D

_WIDENING = [width // static_vgg.WIDTHS[0] for width in static_vgg.WIDTHS]


class VGG(nn.Module):
    """Convolutions in five stages and three linear layers.

    Args:
        depth: 11, 13, 16 or 19.
        width: channels of the first stage.
        hidden: the width of the first two linear layers.
        class_dim: the number of classes.
        batch_norm: whether every convolution is followed by batch normalisation.
    """

    def __init__(
        self,
        depth: int = 16,
        *,
        width: int = 64,
        hidden: int = 4096,
        class_dim: int = 1000,
        batch_norm: bool = False,
    ) -> None:
        super().__init__()
        check_depth(depth)
        layers: list[nn.Module] = []
        inputs = 3
        for count, factor in zip(static_vgg.STAGES[depth], _WIDENING, strict=True):
            for _ in range(count):
                layers.append(nn.Conv2d(inputs, width * factor, 3, padding=1))
                inputs = width * factor
                if batch_norm:
                    layers.append(nn.BatchNorm2d(inputs))
                layers.append(nn.ReLU(inplace=True))
            layers.append(nn.MaxPool2d(2, 2))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(7)
        self.classifier = nn.Sequential(
            nn.Linear(inputs * 7 * 7, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(hidden, class_dim),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the scores of images [N, 3, H, W]."""
        return self.classifier(self.avgpool(self.features(images)).flatten(1))


def check_depth(depth: int) -> None:
    """Reject a depth that no VGG has."""
    if depth not in static_vgg.STAGES:
        known = list(static_vgg.STAGES)
        raise ValueError(f"depth of VGG must be one of {known}, but is {depth!r}.")


class VGG16(ImageModel):
    """VGG for images, with 16 layers by default.

    Args:
        data_layout: "NCHW", or "NHWC" for channels-last images.
        class_dim: the number of classes.
        image_size: height and width of the images.
        depth: 11, 13, 16 or 19.
        width: channels of the first stage; 64 in the published network.
        hidden: the width of the first two linear layers; 4096 in the published network.
        batch_norm: whether every convolution is followed by batch normalisation.
    """

    def __init__(
        self,
        data_layout: str = "NCHW",
        *,
        class_dim: int = 1000,
        image_size: int = 224,
        depth: int = 16,
        width: int = 64,
        hidden: int = 4096,
        batch_norm: bool = False,
    ) -> None:
        check_depth(depth)
        if image_size < 32:
            raise ValueError(f"image_size of VGG must be at least 32, but is {image_size!r}.")
        self.depth, self.width, self.hidden, self.batch_norm = depth, width, hidden, batch_norm
        super().__init__(data_layout, class_dim=class_dim, image_size=image_size)

    def make_layer(self) -> Layer:
        """Return the static network, with the ends of its stages as checkpoints."""
        widths = [self.width * factor for factor in _WIDENING]
        features = static_vgg.vgg_features(self.depth, self.batch_norm, widths)
        for layer in features.children():
            if isinstance(layer, MaxPool2D):
                self.keep_output_of(layer)
        return static_vgg.VGG(features, self.class_dim, channels=widths[-1], hidden=self.hidden)

    def make_module(self) -> VGG:
        """Return the network as a module, with its own weights."""
        return VGG(
            self.depth,
            width=self.width,
            hidden=self.hidden,
            class_dim=self.class_dim,
            batch_norm=self.batch_norm,
        )
