"""What the quick start's program takes from the files around it: network, data, optimizer."""

import os
from types import SimpleNamespace

import numpy as np

import paddle

__all__ = ["class_dim", "get_train_loader", "optimizer_setting", "os", "resnet"]

class_dim = 10


class _ResNet:
    """A stem and bottlenecks of few filters; the same values on every engine."""

    def __init__(self, layers):
        self._blocks = layers // 25
        self._random = np.random.RandomState(4)

    def _weight(self, *shape):
        value = self._random.standard_normal(shape) * (2.0 / np.prod(shape[1:])) ** 0.5
        return paddle.ParamAttr(initializer=paddle.nn.initializer.Assign(value.astype("float32")))

    def _conv(self, x, filters, size, stride=1, act=None):
        x = paddle.static.nn.conv2d(
            x,
            filters,
            size,
            stride,
            (size - 1) // 2,
            param_attr=self._weight(filters, x.shape[1], size, size),
            bias_attr=False,
        )
        return paddle.static.nn.batch_norm(x, act=act)

    def net(self, input, class_dim):
        """Return the scores of the classes."""
        x = self._conv(input, 8, 7, 4, "relu")
        x = paddle.nn.functional.max_pool2d(x, 3, 2, 1)
        for _ in range(self._blocks):
            y = self._conv(self._conv(self._conv(x, 4, 1, 1, "relu"), 4, 3, 1, "relu"), 8, 1)
            x = paddle.nn.functional.relu(x + y)
        x = paddle.flatten(paddle.nn.functional.adaptive_avg_pool2d(x, 1), 1)
        return paddle.static.nn.fc(x, class_dim, weight_attr=self._weight(8, class_dim))


resnet = SimpleNamespace(ResNet=_ResNet)


class _Images(paddle.io.Dataset):
    """Eight images that are brighter the higher their class."""

    def __init__(self):
        random = np.random.RandomState(6)
        labels = random.randint(class_dim, size=(8, 1, 1, 1))
        self._images = (random.standard_normal((8, 3, 224, 224)) + 0.3 * labels).astype("float32")
        self._labels = labels.reshape(8, 1).astype("int64")

    def __getitem__(self, index):
        return self._images[index], self._labels[index]

    def __len__(self):
        return 8


def get_train_loader(feed_list, place):
    """Return a loader of two batches of four images."""
    return paddle.io.DataLoader(
        _Images(), feed_list=feed_list, places=[place], batch_size=4, return_list=False
    )


def optimizer_setting():
    """Return Momentum with weight decay."""
    decay = paddle.regularizer.L2Decay(1e-4)
    return paddle.optimizer.Momentum(learning_rate=0.001, momentum=0.9, weight_decay=decay)
