"""Residual networks of 18 to 152 layers, built from the layers of `paddle.static.nn`."""

import paddle
from paddle.static import Variable

# Blocks in each of the four stages, and whether a block narrows the picture's channels first.
DEPTHS = {
    18: ((2, 2, 2, 2), False),
    34: ((3, 4, 6, 3), False),
    50: ((3, 4, 6, 3), True),
    101: ((3, 4, 23, 3), True),
    152: ((3, 8, 36, 3), True),
}


class ResNet:
    """A residual network; `width` is the number of channels of the first stage."""

    def __init__(self, layers: int = 50, width: int = 64) -> None:
        if layers not in DEPTHS:
            raise ValueError(f"ResNet has {', '.join(map(str, DEPTHS))} layers, not {layers}.")
        self.stages, self.has_bottlenecks = DEPTHS[layers]
        self.width = width

    def net(self, input: Variable, class_dim: int = 1000) -> Variable:
        """Add the network to the current program and return one score per class."""
        x = self.convolution(input, self.width, 7, stride=2, act="relu")
        x = paddle.nn.functional.max_pool2d(x, kernel_size=3, stride=2, padding=1)
        for stage, blocks in enumerate(self.stages):
            for block in range(blocks):
                stride = 2 if block == 0 and stage > 0 else 1
                x = self.block(x, self.width * 2**stage, stride)
        x = paddle.nn.functional.adaptive_avg_pool2d(x, 1)
        return paddle.static.nn.fc(x, size=class_dim)

    def block(self, x: Variable, channels: int, stride: int) -> Variable:
        """Add one residual block."""
        if self.has_bottlenecks:
            y = self.convolution(x, channels, 1, act="relu")
            y = self.convolution(y, channels, 3, stride=stride, act="relu")
            y = self.convolution(y, channels * 4, 1)
        else:
            y = self.convolution(x, channels, 3, stride=stride, act="relu")
            y = self.convolution(y, channels, 3)
        if x.shape != y.shape:
            x = self.convolution(x, y.shape[1], 1, stride=stride)
        return paddle.nn.functional.relu(x + y)

    @staticmethod
    def convolution(
        x: Variable, channels: int, size: int, stride: int = 1, act: str | None = None
    ) -> Variable:
        """Add a convolution with batch normalisation."""
        y = paddle.static.nn.conv2d(
            x, channels, size, stride=stride, padding=size // 2, bias_attr=False
        )
        return paddle.static.nn.batch_norm(y, act=act)
