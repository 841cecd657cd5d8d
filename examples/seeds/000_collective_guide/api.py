"""The table of Fleet's functions, each called: `fleetrun --nproc_per_node 2 api.py FOLDER`.

Prints a line per function with what it returned, and saves into FOLDER what the last ones save.
"""

import sys

import numpy as np
from network import gen_data, mlp

import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base import role_maker
from paddle.fluid.incubate.fleet.collective import DistributedStrategy, fleet

folder = sys.argv[1]
fleet.init(role_maker.PaddleCloudRoleMaker(is_collective=True))
print("fleet.worker_num():", fleet.worker_num())
print("fleet.worker_index():", fleet.worker_index())
print("fleet.worker_endpoints():", fleet.worker_endpoints())

input_x = fluid.layers.data(name="x", shape=[32], dtype="float32")
input_y = fluid.layers.data(name="y", shape=[1], dtype="int64")
cost = mlp(input_x, input_y)
optimizer = fleet.distributed_optimizer(fluid.optimizer.SGD(0.01), strategy=DistributedStrategy())
print("fleet.distributed_optimizer():", type(optimizer).__name__)
optimize_ops, params_grads = optimizer.minimize(
    cost, startup_program=None, parameter_list=None, no_grad_set=None
)
print("minimize():", len(optimize_ops), "updates of", len(params_grads), "parameters")
print("fleet.main_program:", len(fleet._origin_program.global_block().ops), "ops")
print("fleet.startup_program:", len(fleet.startup_program.global_block().ops), "ops")

exe = fluid.Executor(fluid.CPUPlace())
exe.run(fleet.startup_program)
rng = np.random.default_rng(fleet.worker_index())
exe.run(fleet.main_program, feed=gen_data(rng), fetch_list=[cost])
if fleet.worker_index() == 0:
    fleet.save_persistables(exe, f"{folder}/parameters", main_program=None)
    prediction = fleet._origin_program.global_block().var("fc_2.tmp_2")
    fleet.save_inference_model(
        exe,
        f"{folder}/inference",
        feeded_var_names=["x"],
        target_vars=[prediction],
        main_program=None,
        export_for_deployment=True,
    )
