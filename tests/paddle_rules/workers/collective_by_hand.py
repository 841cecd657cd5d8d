"""Train a program that GradAllReduce or LocalSGD has rewritten; write the parameters as JSON."""

import json
import os
import sys
from pathlib import Path

import numpy as np

import paddle.fluid as fluid
from paddle.fluid.transpiler.collective import GradAllReduce, LocalSGD

kind, folder = sys.argv[1:]
rank = int(os.environ["PADDLE_TRAINER_ID"])
endpoints = os.environ["PADDLE_TRAINER_ENDPOINTS"]
with fluid.program_guard(fluid.Program(), fluid.Program()):
    main, startup = fluid.default_main_program(), fluid.default_startup_program()
    startup.random_seed = 3  # rounding errors are then those of every run
    x = fluid.data("x", [None, 2])
    out = fluid.layers.fc(x, 1, param_attr="w", bias_attr=False)
    loss = fluid.layers.mean(fluid.layers.square(out - 1.0))
    fluid.optimizer.SGD(0.1).minimize(loss)
    made = {"grads": GradAllReduce, "params": LocalSGD}[kind](nrings=1)
    made.transpile(startup, main, rank, endpoints, endpoints.split(",")[rank], True)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    weights = fluid.global_scope().find_var("w").get_tensor()
    found = [np.array(weights).tolist()]
    for step in range(3):
        batch = np.array([[1.0, 2.0], [0.5, -1.0]], "float32") * (1 + rank + step)
        exe.run(main, feed={"x": batch}, fetch_list=[loss])
        found.append(np.array(weights).tolist())
Path(folder, f"{rank}.json").write_text(json.dumps(found))
