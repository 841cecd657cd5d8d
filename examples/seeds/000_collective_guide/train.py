"""Train on one worker with the names of paddle.fluid: `python train.py`.

Parameters are read from, and at the end written to, the folder --model if it exists.
"""

import argparse
import os

import numpy as np
from network import gen_data, mlp

import paddle.fluid as fluid

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--steps", type=int, default=1001)
parser.add_argument("--model", default="./pretrained_model", help="folder of the parameters")
args = parser.parse_args()

input_x = fluid.layers.data(name="x", shape=[32], dtype="float32")
input_y = fluid.layers.data(name="y", shape=[1], dtype="int64")
cost = mlp(input_x, input_y)
optimizer = fluid.optimizer.SGD(learning_rate=0.01)
optimizer.minimize(cost)

train_prog = fluid.default_main_program()
place = fluid.CUDAPlace(int(os.getenv("FLAGS_selected_gpus", "0")))  # noqa: SIM112
exe = fluid.Executor(place)
exe.run(fluid.default_startup_program())


def if_exist(var: fluid.Variable) -> bool:
    """Tell whether an earlier run has left this variable."""
    has_var = os.path.exists(os.path.join(args.model, var.name))
    if has_var:
        print(f"var: {var.name} found")
    return has_var


fluid.io.load_vars(exe, args.model, predicate=if_exist)

rng = np.random.default_rng(0)
for step in range(args.steps):
    cost_val = exe.run(program=train_prog, feed=gen_data(rng), fetch_list=[cost.name])
    print("step%d cost = %f" % (step, cost_val[0]))  # noqa: UP031 - an array of one number

if os.path.exists(args.model):
    fluid.io.save_persistables(exe, args.model)
