"""LocalSGD by hand, as the documents of 1.x have it: fleet.main_program every few steps,
fleet._origin_program in between; with "adaptive" the interval follows the averaged loss.

Every worker writes, per step, whether it communicated and its first weights, as JSON.
"""

import json
import math
import os
import sys

import numpy as np

import paddle.fluid as fluid
from paddle.fluid import core
from paddle.fluid.incubate.fleet.base import role_maker
from paddle.fluid.incubate.fleet.collective import DistributedStrategy, fleet

options = json.loads(sys.argv[1])


def local_steps(epoch, most, warmup):
    """One at first, then powers of two up to `most`."""
    offset = epoch - warmup
    if offset < 0:
        return 1
    powers = [2**i for i in range(most) if 2**i <= most]
    return most if offset >= len(powers) else powers[offset]


def adaptive_steps(first_loss, first_rate, loss, rate, base, before):
    lowest = 0.6
    ratio = first_rate * (loss - lowest) / (rate * max(first_loss - lowest, 1e-12))
    steps = max(1, int(base * math.sqrt(max(ratio, 0.0))))
    return before if steps > before + 20 else steps


def build_sum(main, startup):
    """A program of its own that sums a number over the workers with raw collective ops."""
    with fluid.program_guard(main, startup):
        given = fluid.layers.data(name="given", shape=[1], dtype="float32")
        total = main.current_block().create_var(
            name="total",
            dtype="float32",
            type=core.VarDesc.VarType.LOD_TENSOR,
            persistable=False,
            stop_gradient=False,
        )
        block, ring = main.global_block(), {"ring_id": 0}
        block.append_op(
            type="c_allreduce_sum", inputs={"X": given}, attrs=ring, outputs={"Out": total}
        )
        block.append_op(
            type="c_sync_comm_stream", inputs={"X": total}, outputs={"Out": total}, attrs=ring
        )
    return total


x = fluid.layers.data(name="x", shape=[32], dtype="float32")
y = fluid.layers.data(name="y", shape=[1], dtype="int64")
hidden = fluid.layers.fc(input=x, size=16, act="tanh")
prediction = fluid.layers.fc(input=[hidden], size=2, act="softmax")
cost = fluid.layers.mean(x=fluid.layers.cross_entropy(input=prediction, label=y))

strategy = DistributedStrategy()
strategy.use_local_sgd = True
fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
optimizer = fleet.distributed_optimizer(fluid.optimizer.SGD(learning_rate=0.1), strategy=strategy)
optimizer.minimize(cost, fluid.default_startup_program())
place = fluid.CUDAPlace(int(os.getenv("FLAGS_selected_gpus", "0")))  # noqa: SIM112
exe = fluid.Executor(place)
exe.run(fleet.startup_program)

sum_main, sum_startup = fluid.Program(), fluid.Program()
total = build_sum(sum_main, sum_startup)
sum_exe = fluid.Executor(place)
sum_exe.run(sum_startup)

rng = np.random.default_rng(fleet.worker_index())
types = {op.type for op in fleet.main_program.global_block().ops}
origin_types = {op.type for op in fleet._origin_program.global_block().ops}
result = {"main": sorted(types - origin_types), "steps": [], "intervals": [], "mean_losses": []}
first_loss, interval = None, 4
for epoch in range(3):
    if not options.get("adaptive"):
        interval = local_steps(epoch, most=4, warmup=1)
    result["intervals"].append(interval)
    for step in range(4):
        is_common = step % interval == 0
        program = fleet.main_program if is_common else fleet._origin_program
        batch = rng.random((8, 32), dtype=np.float32)
        feed = {"x": batch, "y": (batch.sum(1, keepdims=True) > 16).astype("int64")}
        (loss,) = exe.run(program, feed=feed, fetch_list=[cost], use_program_cache=True)
        print(f"worker_index: {fleet.worker_index()}, step{step} cost = {loss.item():f}")
        weight = np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor())
        result["steps"].append([is_common, weight[0, :4].tolist()])
    (loss_sum,) = sum_exe.run(sum_main, feed={"given": loss}, fetch_list=[total.name])
    mean_loss = float(loss_sum[0]) / fleet.worker_num()
    result["mean_losses"].append([float(loss[0]), mean_loss])
    first_loss = first_loss or mean_loss
    if options.get("adaptive"):
        interval = adaptive_steps(first_loss, 0.1, mean_loss, 0.1, base=4, before=interval)
with open(f"{options['out']}.{fleet.worker_index()}", "w") as file:
    json.dump(result, file)
