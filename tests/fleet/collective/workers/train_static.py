"""A program trained by all workers; writes losses and parameters of rank 0 as JSON."""

import json
import sys

import numpy as np
import torch

from fleetx import fleet, static
from fleetx.static import layers
from fleetx.static.readers.py_reader import create_py_reader_by_data, py_reader, read_file

options = json.loads(sys.argv[1])
strategy = fleet.DistributedStrategy()
for name, value in options.get("strategy", {}).items():
    setattr(strategy, name, value)
fleet.init(is_collective=True, strategy=strategy)
torch.manual_seed(7 if fleet.worker_index() == 0 else 1000 + fleet.worker_index())
reader = None
if options.get("input") == "py_reader":
    reader = py_reader(4, [[-1, 6], [-1, 1]], ["float64", "int64"])
    x, y = read_file(reader)
else:
    x = layers.data("x", shape=[6], dtype="float64")
    y = layers.data("y", shape=[1], dtype="int64")
    if options.get("input") == "create_py_reader_by_data":
        reader = create_py_reader_by_data(4, [x, y])
        x, y = read_file(reader)
h = x
if options.get("table"):
    ids = layers.data("ids", shape=[1], dtype="int64")
    h = x + layers.embedding(ids, [40, 6], is_sparse=True, dtype="float64", param_attr="table")
h = layers.fc(h, 8)
if options.get("batch_norm"):
    h = layers.batch_norm(h)
prediction = layers.fc(layers.tanh(h), 3, act="softmax")
loss = layers.mean(layers.cross_entropy(prediction, y))
kinds = {
    "sgd": lambda: static.optimizer.SGD(0.1),
    "momentum": lambda: static.optimizer.Momentum(0.1, 0.9),
    "adam": lambda: static.optimizer.Adam(0.05),
    "lazy adam": lambda: static.optimizer.Adam(0.05, lazy_mode=True),
}
optimizer = fleet.distributed_optimizer(kinds[options["optimizer"]]())
optimizer.minimize(loss)
types = [op.type for op in fleet.main_program.global_block().ops]
assert ("c_allreduce_sum" in types) == (fleet.worker_num() > 1), types
origin = [op.type for op in fleet._origin_program.global_block().ops]
assert not any(t.startswith("c_") for t in origin), origin
exe = static.Executor(static.CPUPlace())
exe.run(fleet.startup_program)


def batches():
    """Yield this worker's share of each batch."""
    data = np.random.default_rng(1)
    share = slice(fleet.worker_index(), None, fleet.worker_num())
    for _ in range(6):
        batch_x, batch_y = data.standard_normal((8, 6)), data.integers(0, 3, (8, 1))
        yield batch_x[share], batch_y[share]


if reader is not None:
    reader.decorate_batch_generator(batches)
    reader.start()
losses = []
for batch_x, batch_y in batches():
    feed = {"x": batch_x, "y": batch_y} if reader is None else None
    if feed is not None and options.get("table"):
        feed["ids"] = np.abs(batch_x[:, :1] * 10).astype("int64") % 40
    (value,) = exe.run(fleet.main_program, feed=feed, fetch_list=[loss])
    losses.append(float(fleet.util.all_reduce(float(value))) / fleet.worker_num())
if fleet.is_first_worker():
    state = {
        p.name: np.array(static.global_scope().find_var(p.name).get_tensor()).flatten().tolist()
        for p in fleet._origin_program.all_parameters()
    }
    with open(options["out"], "w") as file:
        json.dump({"losses": losses, "state": state}, file)
