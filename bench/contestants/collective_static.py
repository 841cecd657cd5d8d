"""The same as a program trained by Fleet. Argument: the network."""

import sys

import small_nets
import torch
from group_loop import serve_group

from fleetx import fleet, static
from fleetx.static import layers, models

torch.set_num_threads(1)
fleet.init(is_collective=True)
if sys.argv[1] == "resnet18":
    x = layers.data("x", shape=[3, 32, 32], dtype="float32")
    logits = models.resnet18(num_classes=10)(x)
else:
    x = layers.data("x", shape=[32], dtype="float32")
    hidden = layers.fc(layers.fc(x, 128, act="tanh"), 128, act="tanh")
    logits = layers.fc(hidden, 2)
y = layers.data("y", shape=[1], dtype="int64")
loss = layers.mean(layers.cross_entropy(layers.softmax(logits), y))
fleet.distributed_optimizer(static.optimizer.Momentum(0.01, 0.9)).minimize(loss)
exe = static.Executor(static.CPUPlace())
exe.run(fleet.startup_program)
data = small_nets.batches(sys.argv[1], fleet.worker_index())


def step(i):
    """One training step."""
    images, labels = data[i % len(data)]
    return exe.run(fleet.main_program, feed={"x": images, "y": labels}, fetch_list=[loss])


serve_group(step, 3)
