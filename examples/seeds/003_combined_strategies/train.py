"""ResNet-50 with amp, recompute and lars together: `fleetrun --gpus 0,1 --log_dir log train.py`.

The environment chooses what a document leaves to its reader: FS_YAML is the address of the YAML
file that says where the pictures are, MODEL_SIZES the sizes of the network in JSON (none: those of
ResNet-50). With AUTO=1 the strategy is searched by fleet instead.
"""

import json
import os
import time

import fleetx as X
import paddle
import paddle.distributed.fleet as fleet
import paddle.fluid as fluid

FS_YAML = os.environ.get(
    "FS_YAML", "https://fleet.bj.bcebos.com/test/loader/small_imagenet.yaml"
)  # fmt: skip
SIZES = json.loads(os.environ.get("MODEL_SIZES", "{}"))

paddle.enable_static()
configs = X.parse_train_configs()
fleet.init(is_collective=True)

model = X.applications.Resnet50(**SIZES)
downloader = X.utils.Downloader()
local_path = downloader.download_from_bos(fs_yaml=FS_YAML, local_path="./data")
batch_size = configs.batch_size
loader = model.get_train_dataloader(local_path, batch_size=batch_size)

dist_strategy = fleet.DistributedStrategy()
if os.environ.get("AUTO"):
    dist_strategy.auto = True
else:
    dist_strategy.amp = True
    dist_strategy.recompute = True
    dist_strategy.recompute_configs = {"checkpoints": model.checkpoints}
    dist_strategy.lars = True
    dist_strategy.lars_configs = {
        "lars_coeff": 0.001,
        "lars_weight_decay": 0.0005,
        "exclude_from_weight_decay": ["batch_norm", ".b_0"],
    }
optimizer = fluid.optimizer.Momentum(learning_rate=0.01, momentum=0.9)
optimizer = fleet.distributed_optimizer(optimizer, dist_strategy)
optimizer.minimize(model.loss)

place = fluid.CUDAPlace(int(os.environ.get("FLAGS_selected_gpus", 0)))  # noqa: SIM112
exe = fluid.Executor(place)
exe.run(fluid.default_startup_program())

for i, data in enumerate(loader()):
    start_time = time.time()
    cost_val = exe.run(model.main_prog, feed=data, fetch_list=[model.loss.name])
    end_time = time.time()
    print(
        f"worker_index: {fleet.worker_index()}, step{i} cost = {cost_val[0].item():f}, "
        f"speed: {batch_size / (end_time - start_time):f}"
    )
