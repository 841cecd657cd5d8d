"""Train a residual network on all workers: `fleetrun --nproc_per_node 2 train_fleet_static.py`.

The numbered comments mark what differs from train.py.
"""

import os

from pictures import make_loader, read_options
from resnet import ResNet

import paddle

# 1. import fleet
from paddle.distributed import fleet


def train_resnet() -> None:
    """Build the program, train it, print loss and accuracies."""
    args = read_options(__doc__.splitlines()[0])
    paddle.enable_static()
    paddle.vision.set_image_backend("cv2")
    image = paddle.static.data(name="x", shape=[None, 3, args.size, args.size], dtype="float32")
    label = paddle.static.data(name="y", shape=[None, 1], dtype="int64")
    out = ResNet(layers=args.layers, width=args.width).net(input=image, class_dim=args.classes)
    avg_cost = paddle.nn.functional.cross_entropy(input=out, label=label)
    acc_top1 = paddle.metric.accuracy(input=out, label=label, k=1)
    acc_top5 = paddle.metric.accuracy(input=out, label=label, k=5)

    place = paddle.CUDAPlace(int(os.environ.get("FLAGS_selected_gpus", 0)))  # noqa: SIM112
    # 2. meet the other workers; each of them gets its share of the pictures
    strategy = fleet.DistributedStrategy()
    fleet.init(is_collective=True, strategy=strategy)
    loader = make_loader(
        [image, label], place, args, worker=fleet.worker_index(), workers=fleet.worker_num()
    )
    optimizer = paddle.optimizer.Momentum(learning_rate=0.05, momentum=0.9, weight_decay=1e-4)
    # 3. let fleet's optimizer write the communication into the program
    optimizer = fleet.distributed_optimizer(optimizer)
    optimizer.minimize(avg_cost)

    exe = paddle.static.Executor(place)
    exe.run(paddle.static.default_startup_program())
    fetches = [avg_cost.name, acc_top1.name, acc_top5.name]
    for epoch in range(args.epochs):
        for batch, data in enumerate(loader()):
            loss, acc1, acc5 = exe.run(
                paddle.static.default_main_program(), feed=data, fetch_list=fetches
            )
            print(
                f"[Epoch {epoch}, batch {batch}] loss: {loss.item():.5f}, "
                f"acc1: {acc1.item():.5f}, acc5: {acc5.item():.5f}"
            )


if __name__ == "__main__":
    train_resnet()
