"""Train a program that `train_program.py` saved: train_saved.py fluid FOLDER FOUND.npz."""

import os
import sys

import numpy as np
from training_inputs import STEPS, batch

from paddle import fluid

folder, found = sys.argv[2:4]
with open(os.path.join(folder, "program"), "rb") as stream:
    program = fluid.Program.parse_from_string(stream.read())
with open(os.path.join(folder, "names")) as stream:
    loss, parameter = stream.read().split()
executor = fluid.Executor(fluid.CPUPlace())
fluid.io.load_persistables(executor, folder, program, filename="state")
losses = [executor.run(program, feed=batch(i), fetch_list=[loss])[0] for i in range(STEPS)]
value = np.array(fluid.global_scope().find_var(parameter).get_tensor())
np.savez(found, losses=np.array(losses).reshape(-1), parameter=value)
