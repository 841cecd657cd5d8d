"""ResNet as a static model (`Resnet50`, `Resnet50Mlperf`) and as a module (`ResNet`).

He et al., "Deep Residual Learning for Image Recognition", 2015; the stride of a bottleneck is in
its 3x3 convolution. The static network is `fleetx.static.models.ResNet`; the module has the keys of
torchvision, the program the names of Paddle 2.
"""

from __future__ import annotations

import torch
from torch import nn

from fleetx.applications.image_model import ImageModel
from fleetx.static.graph.variable import Variable
from fleetx.static.layers import softmax_with_cross_entropy
from fleetx.static.models import resnet as static_resnet
from fleetx.static.nn import Layer

BLOCKS = static_resnet.BLOCKS
"""The number of blocks in the four stages of each depth."""


class Block(nn.Module):
    """A residual block: two 3x3 convolutions, or 1x1, 3x3 and 1x1 with 4 times the width."""

    def __init__(self, inputs: int, planes: int, stride: int, is_bottleneck: bool) -> None:
        super().__init__()
        outputs = planes * 4 if is_bottleneck else planes
        shapes = [(inputs, planes, 3, stride), (planes, planes, 3, 1)]
        if is_bottleneck:
            shapes = [(inputs, planes, 1, 1), (planes, planes, 3, stride), (planes, outputs, 1, 1)]
        self.depth = len(shapes)
        for i, (from_, to, size, step) in enumerate(shapes, 1):
            self.add_module(f"conv{i}", nn.Conv2d(from_, to, size, step, size // 2, bias=False))
            self.add_module(f"bn{i}", nn.BatchNorm2d(to))
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the output of the convolutions to the shortcut."""
        out = x
        for i in range(1, self.depth + 1):
            out = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(out))
            if i < self.depth:
                out = self.relu(out)
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """A residual network; `width` is the number of channels of its first stage."""

    def __init__(self, depth: int = 50, width: int = 64, class_dim: int = 1000) -> None:
        super().__init__()
        check_depth(depth)
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        inputs, is_bottleneck = width, depth >= 50
        for i, count in enumerate(BLOCKS[depth]):
            blocks = []
            for j in range(count):
                stride = 2 if i > 0 and j == 0 else 1
                blocks.append(Block(inputs, width * 2**i, stride, is_bottleneck))
                inputs = width * 2**i * (4 if is_bottleneck else 1)
            self.add_module(f"layer{i + 1}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, class_dim)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the scores of images [N, 3, H, W]."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        for i in range(1, 5):
            x = getattr(self, f"layer{i}")(x)
        return self.fc(self.avgpool(x).flatten(1))


def check_depth(depth: int) -> None:
    """Reject a depth that no ResNet has."""
    if depth not in BLOCKS:
        raise ValueError(f"depth of ResNet must be one of {list(BLOCKS)}, but is {depth!r}.")


class Resnet50(ImageModel):
    """ResNet for images, with 50 layers by default.

    Args:
        data_layout: "NCHW", or "NHWC" for channels-last images.
        class_dim: the number of classes.
        image_size: height and width of the images.
        depth: 18, 34, 50, 101 or 152.
        width: channels of the first stage; 64 in the published network.
    """

    def __init__(
        self,
        data_layout: str = "NCHW",
        *,
        class_dim: int = 1000,
        image_size: int = 224,
        depth: int = 50,
        width: int = 64,
    ) -> None:
        check_depth(depth)
        self.depth, self.width = depth, width
        super().__init__(data_layout, class_dim=class_dim, image_size=image_size)

    def make_layer(self) -> Layer:
        """Return the static network, with its blocks as checkpoints."""
        block = static_resnet.BottleneckBlock if self.depth >= 50 else static_resnet.BasicBlock
        network = static_resnet.ResNet(
            block, self.depth, num_classes=self.class_dim, channels=self.width
        )
        for stage in range(1, 5):
            for inner in getattr(network, f"layer{stage}").children():
                self.keep_output_of(inner)
        return network

    def make_module(self) -> ResNet:
        """Return the network as a module, with its own weights."""
        return ResNet(self.depth, self.width, self.class_dim)

    def other_names(self) -> dict[str, str]:
        """Return the names of Paddle 1.x's published weights."""
        names = {"fc_0.w_0": "fc.weight", "fc_0.b_0": "fc.bias", "conv1_weights": "conv1.weight"}
        norms = {"bn_conv1": "bn1"}
        for stage, count in enumerate(BLOCKS[self.depth]):
            for i in range(count):
                letter = chr(ord("a") + i)
                if self.depth in (101, 152) and stage == 2:
                    letter = "a" if i == 0 else f"b{i}"
                block, place = f"{stage + 2}{letter}", f"layer{stage + 1}.{i}"
                convolutions = {f"branch2{'abc'[j]}": f"conv{j + 1}" for j in range(3)}
                for branch, conv in convolutions.items():
                    names[f"res{block}_{branch}_weights"] = f"{place}.{conv}.weight"
                    norms[f"bn{block}_{branch}"] = f"{place}.{conv.replace('conv', 'bn')}"
                names[f"res{block}_branch1_weights"] = f"{place}.downsample.0.weight"
                norms[f"bn{block}_branch1"] = f"{place}.downsample.1"
        parts = {
            "scale": "weight",
            "offset": "bias",
            "mean": "running_mean",
            "variance": "running_var",
        }
        for old, new in norms.items():
            names |= {f"{old}_{a}": f"{new}.{b}" for a, b in parts.items()}
        return {old: key for old, key in names.items() if key in self.weights}


class Resnet50Mlperf(Resnet50):
    """ResNet-50 with the loss of MLPerf's benchmark: label smoothing of 0.1; images are NHWC."""

    smoothing = 0.1

    def __init__(self, **sizes: int) -> None:
        super().__init__("NHWC", **sizes)

    def costs(self, scores: Variable, label: Variable) -> Variable:
        """Return the cross entropy of each image with label smoothing."""
        from fleetx.static.layers import label_smooth, one_hot

        smoothed = label_smooth(one_hot(label, self.class_dim), epsilon=self.smoothing)
        return softmax_with_cross_entropy(scores, smoothed, soft_label=True)
