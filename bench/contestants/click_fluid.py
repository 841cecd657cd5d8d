"""A click network with one sparse table and lazy Adam (paddle.fluid): runs on Paddle 1.8.5 and on
this project. With the argument "sequences", every slot is a sequence of ids (LoD)."""

import sys

from click_data import BATCH, BATCHES, DIM, LAYERS, NUMBERS, ROWS, SLOTS
from loop import serve

import paddle.fluid as fluid

sequences = "sequences" in sys.argv
table = fluid.ParamAttr(name="table", initializer=fluid.initializer.Uniform())
ids = [
    fluid.layers.data(f"C{i}", [1], dtype="int64", lod_level=int(sequences)) for i in range(SLOTS)
]
numbers = fluid.layers.data("numbers", [NUMBERS])
label = fluid.layers.data("label", [1], dtype="int64")
rows = [fluid.layers.embedding(each, [ROWS, DIM], is_sparse=True, param_attr=table) for each in ids]
if sequences:
    rows = [fluid.layers.sequence_pool(each, "sum") for each in rows]
hidden = fluid.layers.concat([*rows, numbers], axis=1)
for size in LAYERS:
    hidden = fluid.layers.fc(hidden, size, act="relu")
prediction = fluid.layers.fc(hidden, 2, act="softmax")
cost = fluid.layers.mean(fluid.layers.cross_entropy(prediction, label))
fluid.optimizer.Adam(1e-4, lazy_mode=True).minimize(cost)
exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())


def as_sequences(feed):
    """Return a batch with one sequence of one id per example and slot."""
    lengths = [[1] * BATCH]
    return {
        name: fluid.create_lod_tensor(value, lengths, fluid.CPUPlace()) if name[0] == "C" else value
        for name, value in feed.items()
    }


batches = [as_sequences(feed) for feed in BATCHES] if sequences else BATCHES


def step(i):
    """One training step."""
    return exe.run(feed=batches[i % len(batches)], fetch_list=[cost.name])


serve(step, 5)
