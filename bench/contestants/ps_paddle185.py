"""The CTR model in paddle.fluid with parameter servers: runs on Paddle 1.8.5 and on this project.

ps_paddle185.py sync|async|geo
"""

import sys

from ctr_data import DIM, GEO_STEPS, HIDDEN, IDS, NAMES, RATE, feeds
from loop import serve

import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base import role_maker
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler.distributed_strategy import (  # noqa: E501 - the name is Paddle's
    StrategyFactory,
)

STRATEGIES = {
    "sync": StrategyFactory.create_sync_strategy,
    "async": StrategyFactory.create_async_strategy,
    "geo": lambda: StrategyFactory.create_geo_strategy(GEO_STEPS),
}

fleet.init(role_maker.PaddleCloudRoleMaker())
slots = [fluid.data(name, [None, 1], dtype="int64") for name in NAMES]
label = fluid.data("label", [None, 1], dtype="int64")
table = fluid.ParamAttr(name="table", initializer=fluid.initializer.Uniform(-0.01, 0.01))
rows = [
    fluid.layers.reshape(
        fluid.embedding(slot, size=[IDS, DIM], is_sparse=True, param_attr=table), [-1, DIM]
    )
    for slot in slots
]
hidden = fluid.layers.concat(rows, axis=1)
for width in HIDDEN:
    hidden = fluid.layers.fc(hidden, width, act="relu")
prediction = fluid.layers.fc(hidden, 2, act="softmax")
loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, label))
strategy = STRATEGIES[sys.argv[1]]()
fleet.distributed_optimizer(fluid.optimizer.SGD(RATE), strategy).minimize(loss)
if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
    sys.exit()
executor = fluid.Executor(fluid.CPUPlace())
# In this order, Paddle 1.8.5 supports geo, too.
fleet.init_worker()
executor.run(fleet.startup_program)
batches = feeds(fleet.worker_index())


def step(i):
    """One training step."""
    executor.run(fleet.main_program, feed=batches[i % len(batches)], fetch_list=[])


serve(step, 20)
fleet.stop_worker()
