"""The same training on several workers: `fleetrun --nproc_per_node 2 collective_train.py`.

Four steps turn local_train.py into this script; they are numbered below.
"""

import argparse
import os

import numpy as np
from network import make_batch, mlp

import paddle.fluid as fluid

# Step 1: import the fleet of collective training and the role makers.
from paddle.fluid.incubate.fleet.base import role_maker
from paddle.fluid.incubate.fleet.collective import DistributedStrategy, fleet

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--mode", choices=("nccl2", "collective"), default="nccl2")
parser.add_argument("--model", default="output/collective", help="folder of the parameters")
parser.add_argument(
    "--save", choices=("all", "first", "own"), default="first",
    help="who saves: every worker into one folder, worker 0 only, each into a folder of its own",
)  # fmt: skip
args = parser.parse_args()

x = fluid.layers.data(name="x", shape=[32], dtype="float32")
y = fluid.layers.data(name="y", shape=[1], dtype="int64")
cost = mlp(x, y)
optimizer = fluid.optimizer.SGD(learning_rate=0.1)

# Step 2: say who is who, and let fleet's optimizer write the communication into the program.
strategy = DistributedStrategy()
strategy.mode = args.mode
fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
optimizer = fleet.distributed_optimizer(optimizer, strategy=strategy)
optimizer.minimize(cost, fluid.default_startup_program())

# Step 3: run fleet's programs.
exe = fluid.Executor(fluid.CPUPlace())
exe.run(fleet.startup_program)


def was_saved(var: fluid.Variable) -> bool:
    """Tell whether an earlier run has left this variable."""
    return os.path.exists(os.path.join(args.model, var.name))


fluid.io.load_vars(exe, args.model, main_program=fleet._origin_program, predicate=was_saved)

rng = np.random.default_rng(fleet.worker_index())  # each worker has data of its own
for step in range(args.steps):
    (value,) = exe.run(program=fleet.main_program, feed=make_batch(rng), fetch_list=[cost.name])
    print(f"worker_index: {fleet.worker_index()}, step{step} cost = {value.item():f}")

# Step 4: save. Files appear whole, so workers that write into one folder do not disturb each other.
if args.save == "own":
    fleet.save_persistables(exe, os.path.join(args.model, str(fleet.worker_index())))
elif args.save == "all" or fleet.worker_index() == 0:
    fleet.save_persistables(exe, args.model)
