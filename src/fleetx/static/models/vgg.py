"""VGG: Simonyan and Zisserman, "Very Deep Convolutional Networks", 2014."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.static import nn
from fleetx.static.building.argument_checks import check_choice
from fleetx.static.building.spatial_variants import with_first
from fleetx.static.graph.variable import Variable
from fleetx.static.models.head import Classifier, refuse_pretrained

__all__ = ["VGG", "vgg11", "vgg13", "vgg16", "vgg19"]

# The number of 3x3 convolutions of each of the five stages, and their width.
STAGES = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
WIDTHS = (64, 128, 256, 512, 512)


class VGG(Classifier):
    """Feature layers followed by three linear ones.

    Args:
        features: the result of `vgg_features`.
        num_classes: the number of scores; 0 for none.
        with_pool: whether to average the last feature map to 7x7.
        channels: the number of channels of the last feature map.
        hidden: the width of the first two linear layers.
    """

    def __init__(
        self,
        features: nn.Layer,
        num_classes: int = 1000,
        with_pool: bool = True,
        *,
        channels: int = 512,
        hidden: int = 4096,
    ) -> None:
        super().__init__(num_classes, with_pool)
        self.features = features
        self.avgpool = nn.AdaptiveAvgPool2D((7, 7)) if with_pool else None
        self.classifier = None
        if num_classes > 0:
            self.classifier = nn.Sequential(
                nn.Linear(channels * 7 * 7, hidden),
                nn.ReLU(),
                nn.Dropout(),
                nn.Linear(hidden, hidden),
                nn.ReLU(),
                nn.Dropout(),
                nn.Linear(hidden, num_classes),
            )

    def extract(self, x: Variable) -> Variable:
        """Return the last feature map."""
        return self.features(x)

    def forward(self, x: Variable) -> Variable:
        """Return scores of images [N, 3, H, W]."""
        return self._end(self.extract(x), self.avgpool, self.classifier)


def vgg_features(
    depth: int, batch_norm: bool = False, widths: Sequence[int] = WIDTHS
) -> nn.Sequential:
    """Return the convolutions of a VGG with these widths in its five stages."""
    check_choice(depth, "depth", STAGES, "VGG")
    layers: list[nn.Layer] = []
    inputs = 3
    for count, width in zip(STAGES[depth], widths, strict=True):
        for _ in range(count):
            layers.append(nn.Conv2D(inputs, width, 3, padding=1))
            if batch_norm:
                layers.append(nn.BatchNorm2D(width))
            layers.append(nn.ReLU())
            inputs = width
        layers.append(nn.MaxPool2D(2, 2))
    return nn.Sequential(*layers)


def _vgg(depth: int, pretrained: bool = False, batch_norm: bool = False, **kwargs: Any) -> VGG:
    refuse_pretrained(pretrained, f"vgg{depth}")
    return VGG(vgg_features(depth, batch_norm), **kwargs)


_DOC = "Build a VGG of {} layers; keywords as in `VGG`."
vgg11 = with_first(_vgg, "vgg11", 11, doc=_DOC.format(11))
vgg13 = with_first(_vgg, "vgg13", 13, doc=_DOC.format(13))
vgg16 = with_first(_vgg, "vgg16", 16, doc=_DOC.format(16))
vgg19 = with_first(_vgg, "vgg19", 19, doc=_DOC.format(19))
