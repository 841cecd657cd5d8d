"""Data parallelism of a program with static Fleet: runs on Paddle 2.6.2 and on this project.
Arguments: the network, and the settings of the strategy as JSON."""

import os
import sys

import real_paddle_gloo
from group_loop import serve_group, strategy_of
from small_data import batches

import paddle
from paddle.distributed import fleet

paddle.enable_static()
fleet.init(is_collective=True, strategy=strategy_of(fleet))
real = "GLOO_ENDPOINT" in os.environ
if real:
    real_paddle_gloo.connect(os.environ["GLOO_ENDPOINT"])
if sys.argv[1] == "resnet18":
    x = paddle.static.data("x", [None, 3, 32, 32], "float32")
    logits = paddle.vision.models.resnet18(num_classes=10)(x)
else:
    inputs, width, depth = (1024, 1024, 4) if sys.argv[1] == "wide" else (32, 128, 2)
    hidden = x = paddle.static.data("x", [None, inputs], "float32")
    for _ in range(depth):
        hidden = paddle.static.nn.fc(hidden, width, activation="tanh")
    logits = paddle.static.nn.fc(hidden, 2)
y = paddle.static.data("y", [None, 1], "int64")
loss = paddle.mean(paddle.nn.functional.cross_entropy(logits, y))
optimizer = paddle.optimizer.Momentum(learning_rate=0.01, momentum=0.9)
fleet.distributed_optimizer(optimizer).minimize(loss)
main, startup = paddle.static.default_main_program(), paddle.static.default_startup_program()
if real:
    real_paddle_gloo.drop_stream_ops(main, startup)
exe = paddle.static.Executor(paddle.CPUPlace())
exe.run(startup)
data = batches(sys.argv[1], fleet.worker_index())


def step(i):
    """One training step."""
    images, labels = data[i % len(data)]
    return exe.run(main, feed={"x": images, "y": labels}, fetch_list=[loss])


barrier = real_paddle_gloo.barrier if real else fleet.barrier_worker
serve_group(step, 3, fleet.worker_index(), barrier)
