"""ResNet-50 with adaptive LocalSGD: `fleetrun --gpus 0,1 resnet50_localsgd.py`.

The environment chooses what a document leaves to its reader: IMAGENET is the path of train.txt,
MODEL_SIZES the sizes of the network in JSON (none: those of ResNet-50), K_STEPS a fixed interval
instead of one that follows the loss.
"""

import json
import os
import time

import fleetx as X
import paddle
import paddle.distributed.fleet as fleet
import paddle.distributed.fleet.base.role_maker as role_maker
import paddle.fluid as fluid

FILE_LIST = os.environ.get("IMAGENET", "/pathto/ImageNet/train.txt")
SIZES = json.loads(os.environ.get("MODEL_SIZES", "{}"))
K_STEPS = os.environ.get("K_STEPS")

paddle.enable_static()
configs = X.parse_train_configs()
role = role_maker.PaddleCloudRoleMaker(is_collective=True)
fleet.init(role)

model = X.applications.Resnet50(**SIZES)
loader = model.load_imagenet_from_file(FILE_LIST, batch_size=configs.batch_size)

dist_strategy = fleet.DistributedStrategy()
dist_strategy.localsgd = True
dist_strategy.auto = K_STEPS is None
dist_strategy.localsgd_configs = {"k_steps": int(K_STEPS or 1)}
optimizer = fluid.optimizer.SGD(learning_rate=0.01)
optimizer = fleet.distributed_optimizer(optimizer, dist_strategy)
optimizer.minimize(model.loss)

place = fluid.CUDAPlace(int(os.environ.get("FLAGS_selected_gpus", 0)))  # noqa: SIM112
exe = fluid.Executor(place)
exe.run(fluid.default_startup_program())

total_time = 0.0
for i, data in enumerate(loader()):
    start_time = time.time()
    cost_val = exe.run(
        paddle.static.default_main_program(), feed=data, fetch_list=[model.loss.name]
    )
    end_time = time.time()
    total_time += end_time - start_time
    print(
        f"worker_index: {fleet.worker_index()}, step{i} cost = {cost_val[0].item():f}, "
        f"total time cost = {total_time:f}, step per second: {(i + 1) / total_time:f}, "
        f"speed: {1 / (end_time - start_time):f}"
    )
