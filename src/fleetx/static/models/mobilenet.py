"""MobileNet, first and second version: Howard et al. 2017, Sandler et al. 2018."""

from __future__ import annotations

from typing import Any

from fleetx.static import nn
from fleetx.static.graph.variable import Variable
from fleetx.static.models.head import Classifier, dropout_linear, refuse_pretrained
from fleetx.static.nn.functional.emit import binary

__all__ = ["MobileNetV1", "MobileNetV2", "mobilenet_v1", "mobilenet_v2"]


def _conv_norm(
    inputs: int,
    outputs: int,
    size: int = 3,
    stride: int = 1,
    groups: int = 1,
    activation: type[nn.Layer] = nn.ReLU,
) -> nn.Sequential:
    """Return a convolution that keeps the size (up to stride), its norm and its activation."""
    conv = nn.Conv2D(inputs, outputs, size, stride, (size - 1) // 2, groups=groups, bias_attr=False)
    return nn.Sequential(conv, nn.BatchNorm2D(outputs), activation())


class _Separable(nn.Layer):
    """A depthwise convolution and a pointwise one."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self._depthwise_conv = _conv_norm(inputs, inputs, 3, stride, groups=inputs)
        self._pointwise_conv = _conv_norm(inputs, outputs, 1)

    def forward(self, x: Variable) -> Variable:
        """Convolve."""
        return self._pointwise_conv(self._depthwise_conv(x))


# (name, input channels, output channels, stride)
_V1 = [
    ("conv2_1", 32, 64, 1),
    ("conv2_2", 64, 128, 2),
    ("conv3_1", 128, 128, 1),
    ("conv3_2", 128, 256, 2),
    ("conv4_1", 256, 256, 1),
    ("conv4_2", 256, 512, 2),
    *((f"conv5_{i}", 512, 512, 1) for i in range(1, 6)),
    ("conv5_6", 512, 1024, 2),
    ("conv6", 1024, 1024, 1),
]


class MobileNetV1(Classifier):
    """MobileNet of separable convolutions; `scale` multiplies all widths."""

    def __init__(self, scale: float = 1.0, num_classes: int = 1000, with_pool: bool = True) -> None:
        super().__init__(num_classes, with_pool)
        self.scale = scale
        self.conv1 = _conv_norm(3, int(32 * scale), stride=2)
        for name, inputs, outputs, stride in _V1:
            self.add_sublayer(name, _Separable(int(inputs * scale), int(outputs * scale), stride))
        self.pool2d_avg = nn.AdaptiveAvgPool2D(1) if with_pool else None
        self.fc = nn.Linear(int(1024 * scale), num_classes) if num_classes > 0 else None

    def extract(self, x: Variable) -> Variable:
        """Return the last feature map."""
        x = self.conv1(x)
        for name, *_ in _V1:
            x = getattr(self, name)(x)
        return x

    def forward(self, x: Variable) -> Variable:
        """Return scores of images [N, 3, H, W]."""
        return self._end(self.extract(x), self.pool2d_avg, self.fc)


class _Inverted(nn.Layer):
    """An inverted residual block: expand, depthwise convolution, project."""

    def __init__(self, inputs: int, outputs: int, stride: int, widening: int) -> None:
        super().__init__()
        hidden = round(inputs * widening)
        layers: list[nn.Layer] = []
        if widening != 1:
            layers.append(_conv_norm(inputs, hidden, 1, activation=nn.ReLU6))
        layers += [
            _conv_norm(hidden, hidden, 3, stride, hidden, nn.ReLU6),
            nn.Conv2D(hidden, outputs, 1, bias_attr=False),
            nn.BatchNorm2D(outputs),
        ]
        self._short_cut = stride == 1 and inputs == outputs
        self.conv = nn.Sequential(*layers)

    def forward(self, x: Variable) -> Variable:
        """Convolve."""
        out = self.conv(x)
        return binary("elementwise_add", x, out) if self._short_cut else out


def _rounded(width: float) -> int:
    """Return a multiple of 8 near the width, not more than a tenth below it."""
    near = max(8, int(width + 4) // 8 * 8)
    return near + 8 if near < 0.9 * width else near


# (expansion, width, blocks, stride of the first)
_V2 = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
]


class MobileNetV2(Classifier):
    """MobileNet of inverted residual blocks; `scale` multiplies all widths."""

    def __init__(self, scale: float = 1.0, num_classes: int = 1000, with_pool: bool = True) -> None:
        super().__init__(num_classes, with_pool)
        inputs = _rounded(32 * scale)
        last = _rounded(1280 * max(1.0, scale))
        features: list[nn.Layer] = [_conv_norm(3, inputs, 3, 2, activation=nn.ReLU6)]
        for widening, width, count, stride in _V2:
            outputs = _rounded(width * scale)
            for i in range(count):
                features.append(_Inverted(inputs, outputs, stride if i == 0 else 1, widening))
                inputs = outputs
        features.append(_conv_norm(inputs, last, 1, activation=nn.ReLU6))
        self.features = nn.Sequential(*features)
        self.pool2d_avg = nn.AdaptiveAvgPool2D(1) if with_pool else None
        self.classifier = dropout_linear(last, num_classes, 0.2) if num_classes > 0 else None

    def extract(self, x: Variable) -> Variable:
        """Return the last feature map."""
        return self.features(x)

    def forward(self, x: Variable) -> Variable:
        """Return scores of images [N, 3, H, W]."""
        return self._end(self.extract(x), self.pool2d_avg, self.classifier)


def mobilenet_v1(pretrained: bool = False, scale: float = 1.0, **kwargs: Any) -> MobileNetV1:
    """Build a MobileNetV1; keywords as in `MobileNetV1`."""
    refuse_pretrained(pretrained, "mobilenet_v1")
    return MobileNetV1(scale=scale, **kwargs)


def mobilenet_v2(pretrained: bool = False, scale: float = 1.0, **kwargs: Any) -> MobileNetV2:
    """Build a MobileNetV2; keywords as in `MobileNetV2`."""
    refuse_pretrained(pretrained, "mobilenet_v2")
    return MobileNetV2(scale=scale, **kwargs)
