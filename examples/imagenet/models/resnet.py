"""Residual networks for photographs, as programs of paddle.fluid.

    scores = ResNet50().net(input=image, class_dim=1000)

Parameters have the names of Paddle's published models (`res2a_branch2a_weights`, `bn_conv1_scale`,
...), so that a folder of those can be loaded.
"""

import paddle.fluid as fluid

__all__ = ["ResNet", "ResNet101", "ResNet152", "ResNet18", "ResNet34", "ResNet50"]

# Blocks in each of the four stages, and whether a block narrows its channels first.
STAGES = {
    18: ((2, 2, 2, 2), False),
    34: ((3, 4, 6, 3), False),
    50: ((3, 4, 6, 3), True),
    101: ((3, 4, 23, 3), True),
    152: ((3, 8, 36, 3), True),
}


class ResNet:
    """A residual network of so many layers."""

    def __init__(self, layers: int = 50) -> None:
        if layers not in STAGES:
            raise ValueError(f"layers={layers}, but a ResNet has {', '.join(map(str, STAGES))}.")
        self.layers = layers
        self.checkpoints: list[fluid.Variable] = []
        """The checkpoints for recomputation: the output of each block."""

    def net(self, input: fluid.Variable, class_dim: int = 1000) -> fluid.Variable:
        """Add the network to the current program and return one score per class."""
        depths, narrows = STAGES[self.layers]
        x = self.conv(input, 64, 7, "conv1", stride=2, act="relu")
        x = fluid.layers.pool2d(x, pool_size=3, pool_stride=2, pool_padding=1, pool_type="max")
        block = self.bottleneck if narrows else self.basic
        for stage, depth in enumerate(depths):
            for i in range(depth):
                stride = 2 if i == 0 and stage > 0 else 1
                x = block(x, 64 * 2**stage, stride, self.block_name(stage, i))
                self.checkpoints.append(x)
        x = fluid.layers.pool2d(x, pool_type="avg", global_pooling=True)
        return fluid.layers.fc(
            x,
            class_dim,
            param_attr=fluid.ParamAttr(name="fc_0.w_0"),
            bias_attr=fluid.ParamAttr(name="fc_0.b_0"),
        )

    def block_name(self, stage: int, i: int) -> str:
        """Return the name of a block: letters, or in the long third stage of deep networks b1."""
        if self.layers > 50 and stage == 2:
            return f"res{stage + 2}{'a' if i == 0 else f'b{i}'}"
        return f"res{stage + 2}{chr(ord('a') + i)}"

    def basic(self, x: fluid.Variable, filters: int, stride: int, name: str) -> fluid.Variable:
        """Add two convolutions and a shortcut."""
        y = self.conv(x, filters, 3, f"{name}_branch2a", stride=stride, act="relu")
        y = self.conv(y, filters, 3, f"{name}_branch2b")
        around = self.shortcut(x, filters, stride, f"{name}_branch1")
        return fluid.layers.elementwise_add(around, y, act="relu")

    def bottleneck(self, x: fluid.Variable, filters: int, stride: int, name: str) -> fluid.Variable:
        """Add three convolutions, the middle one with fewer channels, and a shortcut."""
        y = self.conv(x, filters, 1, f"{name}_branch2a", act="relu")
        y = self.conv(y, filters, 3, f"{name}_branch2b", stride=stride, act="relu")
        y = self.conv(y, 4 * filters, 1, f"{name}_branch2c")
        around = self.shortcut(x, 4 * filters, stride, f"{name}_branch1")
        return fluid.layers.elementwise_add(around, y, act="relu")

    def shortcut(self, x: fluid.Variable, filters: int, stride: int, name: str) -> fluid.Variable:
        """Return the input, through a convolution if the block changes its shape."""
        if x.shape[1] == filters and stride == 1:
            return x
        return self.conv(x, filters, 1, name, stride=stride)

    def conv(
        self,
        x: fluid.Variable,
        filters: int,
        size: int,
        name: str,
        stride: int = 1,
        act: str | None = None,
    ) -> fluid.Variable:
        """Add a convolution with batch normalisation."""
        x = fluid.layers.conv2d(
            x,
            filters,
            size,
            stride=stride,
            padding=(size - 1) // 2,
            param_attr=fluid.ParamAttr(name=f"{name}_weights"),
            bias_attr=False,
        )
        norm = f"bn_{name}" if name == "conv1" else f"bn{name.removeprefix('res')}"
        return fluid.layers.batch_norm(
            x,
            act=act,
            param_attr=fluid.ParamAttr(name=f"{norm}_scale"),
            bias_attr=fluid.ParamAttr(name=f"{norm}_offset"),
            moving_mean_name=f"{norm}_mean",
            moving_variance_name=f"{norm}_variance",
        )


def ResNet18() -> ResNet:
    """Return the network of 18 layers."""
    return ResNet(18)


def ResNet34() -> ResNet:
    """Return the network of 34 layers."""
    return ResNet(34)


def ResNet50() -> ResNet:
    """Return the network of 50 layers."""
    return ResNet(50)


def ResNet101() -> ResNet:
    """Return the network of 101 layers."""
    return ResNet(101)


def ResNet152() -> ResNet:
    """Return the network of 152 layers."""
    return ResNet(152)
