"""Train with parameter servers: `fleetrun --server_num 2 --worker_num 2 train.py`.

Without a launcher every process says itself who it is, as on a cluster that one's own scripts
start: `python train.py --role server --current_id 0 --endpoints 127.0.0.1:6001,127.0.0.1:6002
--worker_num 2`, and so on for the others (see by_hand.sh).
"""

import argparse
from collections.abc import Callable, Iterator

import numpy as np

import paddle
import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base.role_maker import (
    PaddleCloudRoleMaker,
    Role,
    UserDefinedRoleMaker,
)
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import (
    DistributeTranspilerConfig,
    fleet,
)

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument(
    "--role", choices=("worker", "server"), help="the role of this process, without a launcher"
)
parser.add_argument("--current_id", type=int, default=0)
parser.add_argument("--worker_num", type=int, default=3)
parser.add_argument("--endpoints", default="127.0.0.1:6001,127.0.0.1:6002", help="of the servers")
parser.add_argument("--asynchronous", action="store_true", help="sync_mode=False")
parser.add_argument("--split_method", choices=("RoundRobin", "HashName"), default="RoundRobin")
parser.add_argument("--keep_whole", action="store_true", help="slice_var_up=False")
parser.add_argument("--passes", type=int, default=10)
parser.add_argument("--width", type=int, default=128, help="of the hidden layers")
args = parser.parse_args()

if args.role:
    role = UserDefinedRoleMaker(
        current_id=args.current_id,
        role=Role.WORKER if args.role == "worker" else Role.SERVER,
        worker_num=args.worker_num,
        server_endpoints=args.endpoints.split(","),
    )
    fleet.init(role_maker=role)
else:
    fleet.init(PaddleCloudRoleMaker())


def fake_reader() -> Callable[[], Iterator[tuple[np.ndarray, list[int]]]]:
    """Return a reader of made-up samples that can be learnt, different ones for each worker."""

    def reader() -> Iterator[tuple[np.ndarray, list[int]]]:
        rng = np.random.default_rng(fleet.worker_index())
        for _ in range(24 * 8):
            x = rng.random(13, dtype=np.float32)
            yield x, [int(x.sum() > 6.5)]

    return reader


x = fluid.layers.data(name="x", shape=[13], dtype="float32")
y = fluid.layers.data(name="y", shape=[1], dtype="int64")
hidden = fluid.layers.fc(input=x, size=args.width, act="relu")
hidden = fluid.layers.fc(input=hidden, size=args.width, act="relu")
predict = fluid.layers.fc(input=hidden, size=2, act="softmax")
avg_cost = fluid.layers.mean(fluid.layers.cross_entropy(input=predict, label=y))
auc, auc_batch, _ = fluid.layers.auc(input=predict, label=y)

config = DistributeTranspilerConfig()
config.sync_mode = not args.asynchronous
if args.asynchronous:
    config.runtime_split_send_recv = True
config.split_method = getattr(fluid.transpiler, args.split_method)
config.slice_var_up = not args.keep_whole

optimizer = fluid.optimizer.Adam(learning_rate=0.001)
optimizer = fleet.distributed_optimizer(optimizer, config)
optimizer.minimize(avg_cost)

if fleet.is_server():
    fleet.init_server()
    fleet.run_server()

if fleet.is_worker():
    fleet.init_worker()
    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    feeder = fluid.DataFeeder(place=place, feed_list=[x, y])
    train_reader = paddle.batch(fake_reader(), batch_size=24)
    exe.run(fleet.startup_program)
    for pass_id in range(args.passes):
        for data in train_reader():
            avg_loss_value, auc_value, auc_batch_value = exe.run(
                fleet.main_program, feed=feeder.feed(data), fetch_list=[avg_cost, auc, auc_batch]
            )
            values = (pass_id, avg_loss_value, auc_value, auc_batch_value)
            print("Pass %d, cost = %f, auc = %f, batch_auc = %f" % values)  # noqa: UP031 - arrays
    if fleet.worker_index() == 0:
        fleet.save_persistables(exe, "output/persistables")
        fleet.save_inference_model(exe, "output/inference", ["x"], [predict])
    fleet.stop_worker()
