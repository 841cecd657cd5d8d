"""ResNet, ResNeXt and wide ResNet: He et al., "Deep Residual Learning for Image Recognition", 2015.

The stride of a bottleneck is in its 3x3 convolution. Parameters have the paths of Paddle's models.
"""

from __future__ import annotations

from typing import Any, Protocol

from fleetx.exports import export_defined
from fleetx.static import nn
from fleetx.static.building.argument_checks import check_choice
from fleetx.static.graph.variable import Variable
from fleetx.static.models.head import Classifier, refuse_pretrained
from fleetx.static.nn.functional.emit import binary

BLOCKS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}


class _Residual(nn.Layer):
    """Convolutions with a residual connection; subclasses define the convolutions."""

    expansion = 1

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Layer | None = None,
        groups: int = 1,
        base_width: int = 64,
        norm_layer: Any = None,
    ) -> None:
        super().__init__()
        norm = norm_layer or nn.BatchNorm2D
        self._depth = 0
        for shape in self.convolutions(inplanes, planes, stride, groups, base_width):
            self._depth += 1
            inputs, outputs, size, step, parts = shape
            conv = nn.Conv2D(inputs, outputs, size, step, size // 2, groups=parts, bias_attr=False)
            self.add_sublayer(f"conv{self._depth}", conv)
            self.add_sublayer(f"bn{self._depth}", norm(outputs))
        self.relu = nn.ReLU()
        self.downsample = downsample

    def convolutions(
        self, inputs: int, planes: int, stride: int, groups: int, base_width: int
    ) -> list[tuple[int, int, int, int, int]]:
        """Return (inputs, outputs, size, stride, groups) of each convolution."""
        raise NotImplementedError(f"{type(self).__name__} does not define convolutions().")

    def forward(self, x: Variable) -> Variable:
        """Add the output of the convolutions to the residual connection."""
        out = x
        for i in range(1, self._depth + 1):
            out = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(out))
            if i < self._depth:
                out = self.relu(out)
        short_cut = x if self.downsample is None else self.downsample(x)
        return self.relu(binary("elementwise_add", out, short_cut))


class BasicBlock(_Residual):
    """Two 3x3 convolutions."""

    def convolutions(
        self, inputs: int, planes: int, stride: int, groups: int, base_width: int
    ) -> list[tuple[int, int, int, int, int]]:
        """Return the shapes of the two convolutions."""
        return [(inputs, planes, 3, stride, 1), (planes, planes, 3, 1, 1)]


class BottleneckBlock(_Residual):
    """A 1x1, a 3x3 and a 1x1 convolution."""

    expansion = 4

    def convolutions(
        self, inputs: int, planes: int, stride: int, groups: int, base_width: int
    ) -> list[tuple[int, int, int, int, int]]:
        """Return the shapes of the three convolutions."""
        width = int(planes * (base_width / 64.0)) * groups
        return [
            (inputs, width, 1, 1, 1),
            (width, width, 3, stride, groups),
            (width, planes * self.expansion, 1, 1, 1),
        ]


class ResNet(Classifier):
    """A residual network.

    Args:
        block: BasicBlock or BottleneckBlock.
        depth: 18, 34, 50, 101 or 152.
        width: the base width of a group's convolutions, 64 in the plain network.
        num_classes: the number of scores; 0 for none.
        with_pool: whether to average the last feature map.
        groups: the number of groups of the 3x3 convolutions.
        channels: the number of channels of the first stage.
    """

    def __init__(
        self,
        block: type[_Residual],
        depth: int = 50,
        width: int = 64,
        num_classes: int = 1000,
        with_pool: bool = True,
        groups: int = 1,
        *,
        channels: int = 64,
    ) -> None:
        super().__init__(num_classes, with_pool)
        check_choice(depth, "depth", BLOCKS, "ResNet")
        self.conv1 = nn.Conv2D(3, channels, 7, stride=2, padding=3, bias_attr=False)
        self.bn1 = nn.BatchNorm2D(channels)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2D(3, 2, 1)
        inputs = channels
        for i, count in enumerate(BLOCKS[depth]):
            planes = channels * 2**i
            outputs = planes * block.expansion
            stride = 1 if i == 0 else 2
            short_cut = None
            if stride != 1 or inputs != outputs:
                short_cut = nn.Sequential(
                    nn.Conv2D(inputs, outputs, 1, stride, bias_attr=False),
                    nn.BatchNorm2D(outputs),
                )
            blocks = [block(inputs, planes, stride, short_cut, groups, width)]
            blocks += [
                block(outputs, planes, groups=groups, base_width=width) for _ in range(1, count)
            ]
            self.add_sublayer(f"layer{i + 1}", nn.Sequential(*blocks))
            inputs = outputs
        self.avgpool = nn.AdaptiveAvgPool2D((1, 1)) if with_pool else None
        self.fc = nn.Linear(inputs, num_classes) if num_classes > 0 else None

    def extract(self, x: Variable) -> Variable:
        """Return the last feature map."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for i in range(1, 5):
            x = getattr(self, f"layer{i}")(x)
        return x

    def forward(self, x: Variable) -> Variable:
        """Return scores of images [N, 3, H, W]."""
        return self._end(self.extract(x), self.avgpool, self.fc)


class _Constructor(Protocol):
    def __call__(self, pretrained: bool = False, **kwargs: Any) -> ResNet: ...


def _resnet(
    name: str, depth: int, block: type[_Residual] = BottleneckBlock, **settings: int
) -> _Constructor:
    """Return the function that builds a ResNet of this depth, with these of its settings."""

    def build(pretrained: bool = False, **kwargs: Any) -> ResNet:
        refuse_pretrained(pretrained, name)
        return ResNet(block, depth, **{**kwargs, **settings})

    chosen = "".join(f", {key}={value}" for key, value in settings.items())
    build.__doc__ = f"Build a ResNet of {depth} layers{chosen}; other keywords as in `ResNet`."
    build.__name__ = build.__qualname__ = name
    return build


resnet18 = _resnet("resnet18", 18, BasicBlock)
resnet34 = _resnet("resnet34", 34, BasicBlock)
resnet50 = _resnet("resnet50", 50)
resnet101 = _resnet("resnet101", 101)
resnet152 = _resnet("resnet152", 152)
resnext50_32x4d = _resnet("resnext50_32x4d", 50, groups=32, width=4)
resnext50_64x4d = _resnet("resnext50_64x4d", 50, groups=64, width=4)
resnext101_32x4d = _resnet("resnext101_32x4d", 101, groups=32, width=4)
resnext101_64x4d = _resnet("resnext101_64x4d", 101, groups=64, width=4)
resnext152_32x4d = _resnet("resnext152_32x4d", 152, groups=32, width=4)
resnext152_64x4d = _resnet("resnext152_64x4d", 152, groups=64, width=4)
wide_resnet50_2 = _resnet("wide_resnet50_2", 50, width=128)
wide_resnet101_2 = _resnet("wide_resnet101_2", 101, width=128)


export_defined(globals(), without="BasicBlock BottleneckBlock")
