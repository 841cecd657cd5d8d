"""The CTR model in paddle.static with parameter servers: runs on Paddle 2.6.2 and on this project.

ps_paddle262.py sync|async|geo
"""

import sys

from ctr_data import DIM, GEO_STEPS, HIDDEN, IDS, NAMES, RATE, feeds
from loop import serve

import paddle
from paddle import static
from paddle.distributed import fleet

mode = sys.argv[1]
paddle.enable_static()
fleet.init(is_collective=False)
slots = [static.data(name, [None, 1], dtype="int64") for name in NAMES]
label = static.data("label", [None, 1], dtype="int64")
table = paddle.ParamAttr(name="table", initializer=paddle.nn.initializer.Uniform(-0.01, 0.01))
rows = [
    paddle.reshape(static.nn.sparse_embedding(slot, [IDS, DIM], param_attr=table), [-1, DIM])
    for slot in slots
]
hidden = paddle.concat(rows, axis=1)
for width in HIDDEN:
    hidden = static.nn.fc(hidden, width, activation="relu")
prediction = static.nn.fc(hidden, 2)
loss = paddle.mean(paddle.nn.functional.cross_entropy(prediction, label))
strategy = fleet.DistributedStrategy()
strategy.a_sync = mode != "sync"
if mode == "geo":
    strategy.a_sync_configs = {"k_steps": GEO_STEPS}
fleet.distributed_optimizer(paddle.optimizer.SGD(RATE), strategy).minimize(loss)
if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
    sys.exit()
executor = static.Executor(paddle.CPUPlace())
executor.run(static.default_startup_program())
fleet.init_worker()
program = static.default_main_program()
batches = feeds(fleet.worker_index())


def step(i):
    """One training step."""
    executor.run(program, feed=batches[i % len(batches)], fetch_list=[])


serve(step, 20)
fleet.stop_worker()
