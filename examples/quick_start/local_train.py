"""Train on one worker with the names of paddle.fluid: `python local_train.py`."""

import argparse
import os

import numpy as np
from network import make_batch, mlp

import paddle.fluid as fluid

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--model", default="output/local", help="folder of the parameters")
args = parser.parse_args()

x = fluid.layers.data(name="x", shape=[32], dtype="float32")
y = fluid.layers.data(name="y", shape=[1], dtype="int64")
cost = mlp(x, y)
optimizer = fluid.optimizer.SGD(learning_rate=0.1)
optimizer.minimize(cost)

exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())


def was_saved(var: fluid.Variable) -> bool:
    """Tell whether an earlier run has left this variable."""
    return os.path.exists(os.path.join(args.model, var.name))


fluid.io.load_vars(exe, args.model, predicate=was_saved)

rng = np.random.default_rng(0)
for step in range(args.steps):
    (value,) = exe.run(
        program=fluid.default_main_program(), feed=make_batch(rng), fetch_list=[cost.name]
    )
    print(f"step{step} cost = {value.item():f}")

fluid.io.save_persistables(exe, args.model)
