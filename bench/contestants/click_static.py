"""The click network in paddle.static: runs on Paddle 2.6.2."""

from click_data import BATCHES, DIM, LAYERS, NUMBERS, ROWS, SLOTS
from loop import serve

import paddle

paddle.enable_static()
table = paddle.ParamAttr(name="table", initializer=paddle.nn.initializer.Uniform())
ids = [paddle.static.data(f"C{i}", [None, 1], "int64") for i in range(SLOTS)]
numbers = paddle.static.data("numbers", [None, NUMBERS])
label = paddle.static.data("label", [None, 1], "int64")
rows = [
    paddle.static.nn.embedding(each, [ROWS, DIM], is_sparse=True, param_attr=table) for each in ids
]
hidden = paddle.concat([*(paddle.reshape(each, [-1, DIM]) for each in rows), numbers], axis=1)
for size in LAYERS:
    hidden = paddle.static.nn.fc(hidden, size, activation="relu")
logits = paddle.static.nn.fc(hidden, 2)
cost = paddle.mean(paddle.nn.functional.cross_entropy(logits, label))
paddle.optimizer.Adam(1e-4, lazy_mode=True).minimize(cost)
exe = paddle.static.Executor(paddle.CPUPlace())
exe.run(paddle.static.default_startup_program())


def step(i):
    """One training step."""
    return exe.run(feed=BATCHES[i % len(BATCHES)], fetch_list=[cost])


serve(step, 5)
