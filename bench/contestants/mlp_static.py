"""The documents' first network in paddle.static: runs on Paddle 2.6.2 and 3.3.1."""

from loop import serve
from mlp_data import BATCHES

import paddle

paddle.enable_static()
x = paddle.static.data("x", [None, 32], "float32")
y = paddle.static.data("y", [None, 1], "int64")
hidden = paddle.static.nn.fc(x, 128, activation="tanh")
hidden = paddle.static.nn.fc(hidden, 128, activation="tanh")
logits = paddle.static.nn.fc(hidden, 2)
cost = paddle.mean(paddle.nn.functional.cross_entropy(logits, y))
paddle.optimizer.SGD(learning_rate=0.01).minimize(cost)
exe = paddle.static.Executor(paddle.CPUPlace())
exe.run(paddle.static.default_startup_program())
program = paddle.static.default_main_program()


def step(i):
    """One training step."""
    return exe.run(program, feed=BATCHES[i % len(BATCHES)], fetch_list=[cost])


serve(step, 50)
