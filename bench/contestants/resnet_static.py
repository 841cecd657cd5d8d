"""ResNet-50 in paddle.static: runs on Paddle 2.6.2, 3.3.1 and on this project. 224x224, batch 8,
Momentum."""

import sys
import time

import numpy as np
from loop import peak_mb, serve

import paddle

paddle.enable_static()
before = peak_mb()


def build():
    """Build the programs, with backward and update; return the loss."""
    x = paddle.static.data("x", [None, 3, 224, 224], "float32")
    y = paddle.static.data("y", [None, 1], "int64")
    logits = paddle.vision.models.resnet50()(x)
    loss = paddle.mean(paddle.nn.functional.cross_entropy(logits, y))
    paddle.optimizer.Momentum(learning_rate=0.01, momentum=0.9).minimize(loss)
    return loss


seconds = []
for _ in range(5):
    main, startup = paddle.static.Program(), paddle.static.Program()
    start = time.perf_counter()
    with paddle.static.program_guard(main, startup):
        loss = build()
    seconds.append(time.perf_counter() - start)
exe = paddle.static.Executor(paddle.CPUPlace())
rng = np.random.RandomState(0)
feed = {
    "x": rng.standard_normal((8, 3, 224, 224)).astype("float32"),
    "y": rng.randint(0, 1000, size=(8, 1)).astype("int64"),
}
if "build" not in sys.argv:
    exe.run(startup)


def step(i):
    """One training step."""
    return exe.run(main, feed=feed, fetch_list=[loss])


serve(
    step,
    0 if "build" in sys.argv else 1,
    build_seconds=sorted(seconds)[2],
    first_build_seconds=seconds[0],
    before_mb=before,
)
