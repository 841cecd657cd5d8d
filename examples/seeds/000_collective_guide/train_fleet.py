"""The same training on several workers: `fleetrun --nproc_per_node 2 train_fleet.py`.

Four steps turn train.py into this script; they are numbered below. Options choose among the
variants of a step: who saves, which executor runs the program, mixed precision.
"""

import argparse
import os

import numpy as np
from network import gen_data, mlp

import paddle.fluid as fluid

# Step 1: import the fleet of collective training and the role makers.
from paddle.fluid.incubate.fleet.base import role_maker
from paddle.fluid.incubate.fleet.collective import DistributedStrategy, fleet

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--steps", type=int, default=1001)
parser.add_argument("--model", default="./pretrained_model", help="folder of the parameters")
parser.add_argument("--mode", choices=("nccl2", "collective"), default="nccl2")
parser.add_argument("--fp16", action="store_true", help="train in mixed precision")
parser.add_argument(
    "--save", choices=("all", "first", "own"), default="all",
    help="who saves: every worker into one folder, worker 0 only, each into a folder of its own",
)  # fmt: skip
args = parser.parse_args()

input_x = fluid.layers.data(name="x", shape=[32], dtype="float32")
input_y = fluid.layers.data(name="y", shape=[1], dtype="int64")
cost = mlp(input_x, input_y)
optimizer = fluid.optimizer.SGD(learning_rate=0.01)
if args.fp16:
    optimizer = fluid.contrib.mixed_precision.decorate(
        optimizer, init_loss_scaling=128.0, use_dynamic_loss_scaling=True
    )

# Step 2: say who is who, and let fleet's optimizer write the communication into the program.
dist_strategy = DistributedStrategy()
if args.mode == "collective":  # run by Executor instead of ParallelExecutor
    dist_strategy.mode = "collective"
    dist_strategy.collective_mode = "grad_allreduce"
role = role_maker.PaddleCloudRoleMaker(is_collective=True)
fleet.init(role)
optimizer = fleet.distributed_optimizer(optimizer, strategy=dist_strategy)
optimizer.minimize(cost, fluid.default_startup_program())

# Step 3: run fleet's programs.
train_prog = fleet.main_program
startup_program = fleet.startup_program
place = fluid.CUDAPlace(int(os.getenv("FLAGS_selected_gpus", "0")))  # noqa: SIM112
exe = fluid.Executor(place)
exe.run(startup_program)


def if_exist(var: fluid.Variable) -> bool:
    """Tell whether an earlier run has left this variable."""
    has_var = os.path.exists(os.path.join(args.model, var.name))
    if has_var:
        print(f"var: {var.name} found")
    return has_var


fluid.io.load_vars(exe, args.model, predicate=if_exist)

rng = np.random.default_rng(fleet.worker_index())  # each worker has data of its own
for step in range(args.steps):
    cost_val = exe.run(program=train_prog, feed=gen_data(rng), fetch_list=[cost.name])
    values = (fleet.worker_index(), step, cost_val[0])
    print("worker_index: %d, step%d cost = %f" % values)  # noqa: UP031 - an array of one number

# Step 4: save. Files appear whole, so workers that write into one folder do not disturb each other.
if os.path.exists(args.model):
    if args.save == "own":
        fleet.save_persistables(exe, os.path.join(args.model, str(fleet.worker_index())))
    elif args.save == "all" or fleet.worker_index() == 0:
        fleet.save_persistables(exe, args.model)
