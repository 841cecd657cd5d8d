"""The documents' program with `import fleetx as X`, with its sizes and switches as arguments.

Writes what each worker saw to `out.<worker>` as JSON.
"""

import argparse
import json
import os
import sys
import time

import fleetx as X
import paddle
import paddle.distributed.fleet as fleet
import paddle.fluid as fluid

parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("--model", default="Resnet50")
parser.add_argument("--sizes", type=json.loads, default={})
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--switches", nargs="*", default=[])
parser.add_argument("--loader", choices=["old", "new"], default="new")
own = parser.parse_args()
sys.argv = sys.argv[:1]

paddle.enable_static()
configs = X.parse_train_configs()
fleet.init(is_collective=True)
model = getattr(X.applications, own.model)(**own.sizes)
if own.loader == "new":
    loader = model.get_train_dataloader(own.data, batch_size=own.batch)
else:
    loader = model.load_imagenet_from_file(own.data + "/train.txt", batch_size=own.batch)

dist_strategy = fleet.DistributedStrategy()
for switch in own.switches:
    setattr(dist_strategy, switch, True)
if "recompute" in own.switches:
    dist_strategy.recompute_configs = {"checkpoints": model.checkpoints}
if "lars" in own.switches:
    dist_strategy.lars_configs = {
        "lars_coeff": 0.001,
        "lars_weight_decay": 0.0005,
        "exclude_from_weight_decay": ["batch_norm", ".b_0"],
    }
if "localsgd" in own.switches:
    dist_strategy.auto = True
    dist_strategy.localsgd_configs = {"k_steps": 1}
    optimizer = fluid.optimizer.SGD(learning_rate=0.01)
else:
    optimizer = fluid.optimizer.Momentum(learning_rate=0.01, momentum=configs.momentum)
optimizer = fleet.distributed_optimizer(optimizer, dist_strategy)
optimizer.minimize(model.loss)

place = fluid.CUDAPlace(int(os.environ.get("FLAGS_selected_gpus", 0)))  # noqa: SIM112
exe = fluid.Executor(place)
exe.run(fluid.default_startup_program())

costs = []
for i, data in enumerate(loader()):
    start_time = time.time()
    cost_val = exe.run(model.main_prog, feed=data, fetch_list=[model.loss.name])
    end_time = time.time()
    costs.append(float(cost_val[0][0]))
    print(
        "worker_index: %d, step%d cost = %f, speed: %f"  # noqa: UP031
        % (fleet.worker_index(), i, cost_val[0], own.batch / (end_time - start_time))
    )

result = {
    "costs": costs,
    "applied": fleet._get_applied_meta_list(),
    "sums": {k: float(v.double().sum()) for k, v in model.module_state().items()},
}
with open(f"out.{fleet.worker_index()}", "w") as stream:
    json.dump(result, stream)
