"""The three models of the proofs, with the names of Paddle 1.x ("fluid") and 2.x ("static").

Runs on every engine. Parameters get their values from NumPy in the order of their names, so that
two engines with the same names of parameters have the same model.
"""

import numpy as np

import paddle


class Fluid:
    """Layers under the names of Paddle 1.x."""

    def __init__(self):
        import paddle.fluid as fluid

        self.module, self.layers = fluid, fluid.layers
        self.io = fluid.io

    def data(self, name, shape, dtype):
        return self.module.data(name, shape, dtype)

    def fc(self, x, size, act=None):
        return self.layers.fc(x, size, act=act)

    def embedding(self, ids, size):
        return self.layers.embedding(ids, size)

    def conv(self, x, filters, size, stride):
        return self.layers.conv2d(
            x, filters, size, stride=stride, padding=(size - 1) // 2, bias_attr=False
        )

    def norm(self, x, act=None):
        return self.layers.batch_norm(x, act=act)

    def relu_sum(self, x, y):
        return self.layers.elementwise_add(x, y, act="relu")

    def concat(self, xs):
        return self.layers.concat(xs, axis=1)

    def flatten(self, x):
        return self.layers.flatten(x, axis=1)

    def resnet(self, x):
        x = self.norm(self.conv(x, 64, 7, 2), "relu")
        x = self.layers.pool2d(x, 3, "max", pool_stride=2, pool_padding=1)
        for stage, filters in enumerate([64, 128, 256, 512]):
            for block in range(2):
                stride = 2 if stage and not block else 1
                y = self.norm(self.conv(x, filters, 3, stride), "relu")
                y = self.norm(self.conv(y, filters, 3, 1))
                if x.shape[1] != filters or stride != 1:
                    x = self.norm(self.conv(x, filters, 1, stride))
                x = self.relu_sum(x, y)
        x = self.layers.pool2d(x, pool_type="avg", global_pooling=True)
        return self.layers.fc(x, 10)

    def softmax(self, x):
        return self.layers.softmax(x)

    def executor(self):
        return self.module.Executor(self.module.CPUPlace())

    def save(self, folder, feeds, targets, executor, program):
        names = [v.name for v in feeds]
        self.io.save_inference_model(folder, names, targets, executor, program)

    def load(self, folder, executor):
        return self.io.load_inference_model(folder, executor)


class Static(Fluid):
    """Layers under the names of Paddle 2.x."""

    def __init__(self):
        paddle.enable_static()
        self.module = paddle.static

    def fc(self, x, size, act=None):
        return paddle.static.nn.fc(x, size, activation=act)

    def embedding(self, ids, size):
        return paddle.static.nn.embedding(ids, size)

    def concat(self, xs):
        return paddle.concat(xs, axis=1)

    def flatten(self, x):
        return paddle.flatten(x, start_axis=1)

    def resnet(self, x):
        return paddle.vision.models.resnet18(num_classes=10)(x)

    def softmax(self, x):
        return paddle.nn.functional.softmax(x)

    def executor(self):
        return paddle.static.Executor(paddle.CPUPlace())

    def save(self, folder, feeds, targets, executor, program):
        prefix = folder + "/model"
        paddle.static.save_inference_model(prefix, feeds, targets, executor, program=program)

    def load(self, folder, executor):
        return paddle.static.load_inference_model(folder + "/model", executor)


def api(name):
    """Return the layers under the names of one version."""
    return Fluid() if name == "fluid" else Static()


def mlp(layers):
    """Three layers with every kind of activation that the documents use."""
    x = layers.data("x", [None, 16], "float32")
    hidden = layers.fc(layers.fc(x, 32, "relu"), 24, "tanh")
    return [x], [layers.softmax(layers.fc(hidden, 5)), hidden]


def resnet18(layers):
    """ResNet-18 on small images."""
    x = layers.data("image", [None, 3, 64, 64], "float32")
    return [x], [layers.resnet(x)]


def embedding(layers):
    """Two looked-up features beside dense ones, as click models have them."""
    dense = layers.data("dense", [None, 6], "float32")
    user = layers.data("user", [None, 1], "int64")
    item = layers.data("item", [None, 1], "int64")
    looked = [
        layers.flatten(layers.embedding(user, [50, 8])),
        layers.flatten(layers.embedding(item, [70, 8])),
    ]
    return [dense, user, item], [
        layers.fc(layers.fc(layers.concat([dense, *looked]), 16, "relu"), 1)
    ]


MODELS = {"mlp": mlp, "resnet18": resnet18, "embedding": embedding}


def fill(layers, program, place):
    """Give every persistable variable a value that follows from its name's position."""
    random = np.random.RandomState(3)
    scope = layers.module.global_scope()
    names = sorted(v.name for v in program.list_vars() if v.persistable)
    for name in names:
        tensor = scope.find_var(name).get_tensor()
        shape = np.array(tensor).shape
        scale = (2.0 / max(1, int(np.prod(shape[1:])))) ** 0.5 if len(shape) > 1 else 0.2
        value = random.randn(*shape) * scale
        if len(shape) == 1:  # biases, scales and statistics: variances must be positive
            value = np.abs(value) + 0.5
        tensor.set(value.astype("float32"), place)
