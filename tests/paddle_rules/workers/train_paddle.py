"""A Paddle script of 1.x or 2.x: trains on this worker's share of a batch, writes losses."""

import json
import sys

import numpy as np

import paddle
import paddle.fluid as fluid

version, out = sys.argv[1:3]
paddle.enable_static()
if version == "1":
    import paddle.fluid.incubate.fleet.base.role_maker as role_maker
    from paddle.fluid.incubate.fleet.collective import DistributedStrategy, fleet

    fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
    strategy = DistributedStrategy()
    strategy.nccl_comm_num = 1
else:
    from paddle.distributed import fleet

    fleet.init(is_collective=True)
    strategy = fleet.DistributedStrategy()
    strategy.fuse_grad_size_in_MB = 16

x = fluid.layers.data("x", [4])
y = fluid.layers.data("y", [1])
hidden = fluid.layers.fc(x, 8, act="tanh")
loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
optimizer = fluid.optimizer.Momentum(0.1, 0.9)
optimizer = fleet.distributed_optimizer(optimizer, strategy)
optimizer.minimize(loss)

program = fleet.main_program if version == "1" else fluid.default_main_program()
executor = fluid.Executor(fluid.CPUPlace())
executor.run(fluid.default_startup_program())
first = fluid.io.get_parameter_value_by_name("fc_0.w_0", executor)
random = np.random.default_rng(1)
losses = []
for _ in range(5):
    batch = random.normal(size=(8, 5)).astype("float32")
    share = batch[fleet.worker_index() :: fleet.worker_num()]
    feed = {"x": share[:, :4], "y": share[:, 4:]}
    losses += [float(v[0]) for v in executor.run(program, feed=feed, fetch_list=[loss])]
last = fluid.io.get_parameter_value_by_name("fc_0.w_0", executor)
mean = fleet.util.all_reduce(losses) / fleet.worker_num() if version == "2" else losses


def kinds(program):
    return [op.type for op in program.global_block().ops]


main = getattr(program, "_program", program)
with open(f"{out}.{fleet.worker_index()}", "w") as stream:
    heard = {
        "losses": list(mean),
        "first": first.tolist(),
        "last": last.tolist(),
        "communicates": "c_allreduce_sum" in kinds(main),
        "origin_communicates": "c_allreduce_sum" in kinds(fleet._origin_program),
    }
    json.dump(heard, stream)
