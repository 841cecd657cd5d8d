"""LocalSGD by hand: `fleetrun --nproc_per_node 2 local_sgd.py`, or with --adaptive.

fleet.main_program communicates and runs every few steps, fleet._origin_program in between. The
interval grows after some epochs, or follows the loss that all workers have on average. With --out
every worker writes, per step, whether it communicated and some of its weights, as JSON.
"""

import argparse
import json
import math
import os

import numpy as np

import paddle.fluid as fluid
from paddle.fluid import core
from paddle.fluid.incubate.fleet.base import role_maker
from paddle.fluid.incubate.fleet.collective import DistributedStrategy, fleet

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--adaptive", action="store_true", help="let the interval follow the loss")
parser.add_argument("--local_sgd_steps", type=int, default=4, help="the interval, or its base")
parser.add_argument("--local_sgd_is_warm_steps", type=int, default=1, help="epochs of interval 1")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--steps", type=int, default=4, help="steps per epoch")
parser.add_argument("--out", help="where to write what happened")
args = parser.parse_args()


def get_local_sgd_steps(passid: int, local_sgd_steps: int, local_sgd_warmup: int) -> int:
    """Return one at first, then powers of two up to `local_sgd_steps`."""
    offset = passid - local_sgd_warmup
    if offset < 0:
        return 1
    warm_up = [2**i for i in range(local_sgd_steps) if 2**i <= local_sgd_steps]
    return local_sgd_steps if offset >= len(warm_up) else warm_up[offset]


def adaptive_local_step(
    ini_loss: float, ini_lr: float, cur_loss: float, cur_lr: float, base_step: int, pre_step: int
) -> int:
    """Return the interval of arXiv:1810.08313: the smaller the loss, the more communication."""
    inf_loss = 0.6
    fir = ini_lr * (cur_loss - inf_loss)
    sec = cur_lr * max(ini_loss - inf_loss, 1e-12)
    # A loss under `inf_loss` has no square root.
    step = max(1, int(base_step * math.sqrt(max(fir / sec, 0.0))))
    return pre_step if step > pre_step + 20 else step


def build_allreduce_program(
    main_prog: fluid.Program, startup_program: fluid.Program
) -> fluid.Variable:
    """Build a program of its own that sums a number over the workers with raw collective ops."""
    ring_id = 0
    with fluid.program_guard(main_prog, startup_program):
        tindata = fluid.layers.data(name="tindata", shape=[1], dtype="float32")
        toutdata = main_prog.current_block().create_var(
            name="outofallreduce",
            dtype="float32",
            type=core.VarDesc.VarType.LOD_TENSOR,
            persistable=False,
            stop_gradient=False,
        )
        main_prog.global_block().append_op(
            type="c_allreduce_sum",
            inputs={"X": tindata},
            attrs={"ring_id": ring_id},
            outputs={"Out": toutdata},
        )
        main_prog.global_block().append_op(
            type="c_sync_comm_stream",
            inputs={"X": toutdata},
            outputs={"Out": toutdata},
            attrs={"ring_id": ring_id},
        )
    return toutdata


x = fluid.layers.data(name="x", shape=[32], dtype="float32")
y = fluid.layers.data(name="y", shape=[1], dtype="int64")
hidden = fluid.layers.fc(input=x, size=16, act="tanh")
prediction = fluid.layers.fc(input=[hidden], size=8, act="softmax")
cost = fluid.layers.mean(x=fluid.layers.cross_entropy(input=prediction, label=y))
acc_top1 = fluid.layers.accuracy(input=prediction, label=y, k=1)
acc_top5 = fluid.layers.accuracy(input=prediction, label=y, k=5)

dist_strategy = DistributedStrategy()
dist_strategy.use_local_sgd = True
fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
optimizer = fluid.optimizer.SGD(learning_rate=0.1)
fleet.distributed_optimizer(optimizer, strategy=dist_strategy).minimize(
    cost, fluid.default_startup_program()
)
train_fetch_list = [cost.name, acc_top1.name, acc_top5.name, optimizer._global_learning_rate().name]
place = fluid.CUDAPlace(int(os.getenv("FLAGS_selected_gpus", "0")))  # noqa: SIM112
train_exe = fluid.Executor(place)
train_exe.run(fleet.startup_program)

all_train_prog, all_startup_prog = fluid.Program(), fluid.Program()
result = build_allreduce_program(all_train_prog, all_startup_prog)
all_exe = fluid.Executor(place)
all_exe.run(all_startup_prog)

rng = np.random.default_rng(fleet.worker_index())
types = {op.type for op in fleet.main_program.global_block().ops}
origin_types = {op.type for op in fleet._origin_program.global_block().ops}
seen: dict = {
    "main": sorted(types - origin_types), "steps": [], "intervals": [], "mean_losses": []
}  # fmt: skip
ini_loss = ini_lr = None
cur_local_sgd = args.local_sgd_steps
for pass_id in range(args.epochs):
    if not args.adaptive:
        cur_local_sgd = get_local_sgd_steps(
            pass_id, args.local_sgd_steps, args.local_sgd_is_warm_steps
        )
    seen["intervals"].append(cur_local_sgd)
    for step_cnt in range(args.steps):
        is_common = step_cnt % cur_local_sgd == 0
        current_prog = fleet.main_program if is_common else fleet._origin_program
        batch = rng.random((8, 32), dtype=np.float32)
        loss, acc1, acc5, lr = train_exe.run(
            current_prog,
            feed={"x": batch, "y": batch[:, :8].argmax(1)[:, None]},
            fetch_list=train_fetch_list,
            use_program_cache=True,
        )
        print(f"worker_index: {fleet.worker_index()}, step{step_cnt} cost = {loss.item():f}")
        weight = np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor())
        seen["steps"].append([is_common, weight[0, :4].tolist()])
    all_loss = all_exe.run(all_train_prog, feed={"tindata": loss}, fetch_list=[result.name])
    reduce_loss = float(all_loss[0].item()) / fleet.worker_num()
    seen["mean_losses"].append([loss.item(), reduce_loss])
    ini_loss, ini_lr = ini_loss or reduce_loss, ini_lr or lr.item()
    if args.adaptive:
        cur_local_sgd = adaptive_local_step(
            ini_loss, ini_lr, reduce_loss, lr.item(), args.local_sgd_steps, cur_local_sgd
        )
if args.out:
    with open(f"{args.out}.{fleet.worker_index()}", "w") as file:
        json.dump(seen, file)
