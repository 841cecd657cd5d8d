"""Residual networks under the names that scripts choose them by: `ResNet50().net(input)`."""

import paddle


class ResNet:
    """A residual network; subclasses say which."""

    layers = 50

    def net(self, input: "paddle.static.Variable", class_dim: int = 1000) -> object:
        """Add the network to the current program and return its last layer, one score per class."""
        make = getattr(paddle.vision.models, f"resnet{self.layers}")
        return make(num_classes=class_dim)(input)


class ResNet18(ResNet):
    """18 layers."""

    layers = 18


class ResNet50(ResNet):
    """50 layers."""


class ResNet101(ResNet):
    """101 layers."""

    layers = 101
