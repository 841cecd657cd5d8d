"""Train a ResNet on an ImageNet folder with all workers of a job.

    NUM_CARDS=4 sh scripts/train_gpu.sh
    fleetrun --nproc_per_node 2 train_with_fleet.py --data_dir ./ImageNet --use_local_sgd True

After every epoch the network is validated and a checkpoint written; started again with the same
--checkpoint_dir, training resumes from the last one.
"""

import argparse
import functools
import itertools
import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from models import resnet
from utils.pretrained import load_pretrained
from utils.reader_cv2 import augment_of
from utils.utility import add_arguments, print_arguments

import paddle
import paddle.fluid as fluid
from fleetx.data.imagenet import ImageNet
from fleetx.fleet.saving import program_checkpoints
from paddle.distributed import fleet

RATES = ("piecewise_decay", "cosine_decay", "constant")

parser = argparse.ArgumentParser(
    description=__doc__.splitlines()[0], formatter_class=argparse.RawDescriptionHelpFormatter
)
add_arg = functools.partial(add_arguments, argparser=parser)
add_arg("model", str, "ResNet50", "One of " + ", ".join(resnet.__all__[1:]) + ".")
add_arg("data_dir", str, "./ImageNet", "Folder with train.txt, val.txt and their pictures.")
add_arg("class_dim", int, 1000, "Number of classes.")
add_arg("image_shape", str, "3,224,224", "Channels, height and width of a picture.")
add_arg("batch_size", int, 32, "Pictures per worker and step.")
add_arg("num_epochs", int, 90, "Passes over the pictures.")
add_arg("reader_processes", int, 2, "Processes of each worker that prepare pictures.")
add_arg("lower_scale", float, 0.08, "Minimum fraction of a picture's area in a crop.")
add_arg("lower_ratio", float, 3.0 / 4.0, "Minimum aspect ratio of a crop.")
add_arg("upper_ratio", float, 4.0 / 3.0, "Maximum aspect ratio of a crop.")
add_arg("resize_short_size", int, 256, "Short side before the centre crop in validation.")
add_arg("lr", float, 0.1, "Learning rate for 256 pictures in a step of all workers.")
add_arg("lr_strategy", str, "piecewise_decay", "Learning rate schedule.", choices=RATES)
add_arg("warmup_epochs", int, 0, "Epochs of linear warm-up from 0.")
add_arg("momentum", float, 0.9, "Momentum.")
add_arg("l2_decay", float, 1e-4, "Weight decay.")
add_arg("fp16", bool, False, "Mixed precision.")
add_arg("scale_loss", float, 128.0, "Initial loss scale of mixed precision.")
add_arg("use_recompute", bool, False, "Keep only the outputs of blocks for backward.")
add_arg("use_lars", bool, False, "A rate per layer, for large batches.")
add_arg("use_dgc", bool, False, "Send the largest entries of gradients only.")
add_arg("rampup_begin_step", int, 0, "First step with dgc.")
add_arg("use_local_sgd", bool, False, "Average parameters every few steps instead of gradients.")
add_arg("local_sgd_steps", int, 4, "Steps between averages; 0 for adaptive.")
add_arg("gradient_merge_steps", int, 1, "Batches per update (gradient accumulation).")
add_arg("use_hierarchical_allreduce", bool, False, "Reduce inside machines first.")
add_arg("nccl_comm_num", int, 1, "Number of communicators.")
add_arg("pretrained_model", str, None, "Folder of initial parameters, a file each.")
add_arg("checkpoint_dir", str, "output/checkpoints", "Where checkpoints are.")
add_arg("model_save_dir", str, "output/model", "Path of the final inference model.")
add_arg("do_test", bool, True, "Validate after every epoch.")
add_arg("log_every", int, 10, "Steps between two lines.")
add_arg("tensorboard", str, None, "Folder of event files for TensorBoard.")


class Network:
    """The programs for training and validation, and their outputs."""

    def __init__(self, args: argparse.Namespace) -> None:
        if args.model not in resnet.__all__[1:]:
            parser.error(f"--model {args.model!r} must be one of {', '.join(resnet.__all__[1:])}")
        sides = [int(side) for side in args.image_shape.split(",")]
        self.image = fluid.data("image", [None, *sides], "float32")
        label = fluid.data("label", [None, 1], "int64")
        network = getattr(resnet, args.model)()
        self.scores = network.net(self.image, args.class_dim)
        self.checkpoints = [block.name for block in network.checkpoints]
        self.loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(self.scores, label))
        shares = fluid.layers.softmax(self.scores)
        accuracies = [
            fluid.layers.accuracy(shares, label, k=min(k, args.class_dim)) for k in (1, 5)
        ]
        self.results = [self.loss, *accuracies]
        self.validation = fluid.default_main_program().clone(for_test=True)


def rate(args: argparse.Namespace, steps: int) -> Any:
    """Return the learning rate schedule for epochs of this many steps."""
    full = args.lr * args.batch_size * fleet.worker_num() / 256
    if args.lr_strategy == "cosine_decay":
        found = fluid.layers.cosine_decay(full, steps, args.num_epochs)
    elif args.lr_strategy == "piecewise_decay":
        # A tenth after each third of the training, and once more near its end.
        ends = [int(steps * args.num_epochs * share) for share in (1 / 3, 2 / 3, 8 / 9)]
        found = fluid.layers.piecewise_decay(ends, [full * 0.1**i for i in range(4)])
    else:
        found = full
    if args.warmup_epochs:
        found = fluid.layers.linear_lr_warmup(found, steps * args.warmup_epochs, 0.0, full)
    return found


def strategy_of(args: argparse.Namespace, checkpoints: list[str]) -> fleet.DistributedStrategy:
    """Return the strategy of the options."""
    strategy = fleet.DistributedStrategy()
    strategy.amp = args.fp16
    strategy.amp_configs = {"init_loss_scaling": args.scale_loss}
    strategy.recompute = args.use_recompute
    strategy.recompute_configs = {"checkpoints": checkpoints}
    strategy.lars = args.use_lars
    strategy.dgc = args.use_dgc
    strategy.dgc_configs = {"rampup_begin_step": args.rampup_begin_step}
    strategy.localsgd = args.use_local_sgd and args.local_sgd_steps > 0
    strategy.localsgd_configs = {"k_steps": max(1, args.local_sgd_steps)}
    strategy.adaptive_localsgd = args.use_local_sgd and args.local_sgd_steps == 0
    strategy.gradient_merge = args.gradient_merge_steps > 1
    strategy.gradient_merge_configs = {"k_steps": args.gradient_merge_steps}
    strategy.use_hierarchical_allreduce = args.use_hierarchical_allreduce
    strategy.nccl_comm_num = args.nccl_comm_num
    return strategy


def pictures(args: argparse.Namespace, phase: str) -> Any:
    """Return this worker's pictures; every worker trains on the same number."""
    return ImageNet(
        args.data_dir,
        phase,
        batch_size=args.batch_size,
        drop_last=phase == "train",
        augment=augment_of(args),
        num_classes=args.class_dim,
    ).loader(num_workers=args.reader_processes)


def fed(loader: Any) -> Iterator[dict[str, np.ndarray]]:
    """Yield the batches of a pass as a program takes them."""
    for images, labels in loader:
        yield {"image": images.numpy(), "label": labels.numpy().reshape(-1, 1)}


def validate(exe: fluid.Executor, network: Network, loader: Any) -> list[float]:
    """Return the loss and the accuracies on the pictures of all workers."""
    sums = np.zeros(4)
    for feed in fed(loader):
        found = exe.run(network.validation, feed=feed, fetch_list=network.results)
        count = len(feed["label"])
        sums += [count * float(np.asarray(value).item()) for value in found] + [count]
    sums = np.asarray(fleet.util.all_reduce(sums, "sum"))
    return list(sums[:3] / max(1.0, sums[3]))


def line(values: list[float]) -> str:
    """Return loss and accuracies as the documents print them."""
    return "loss: {:.5f}, acc1: {:.5f}, acc5: {:.5f}".format(*values)


class Board:
    """Event files for TensorBoard, if they are requested."""

    def __init__(self, folder: str | None) -> None:
        self._writer = None
        if folder and fleet.is_first_worker():
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(folder)

    def add(self, part: str, step: int, values: list[float]) -> None:
        """Add loss and accuracies of a step."""
        if self._writer is not None:
            for name, value in zip(("loss", "acc1", "acc5"), values, strict=True):
                self._writer.add_scalar(f"{part}/{name}", value, step)
            self._writer.flush()


def train(args: argparse.Namespace) -> None:
    """Train from the last checkpoint, or from the beginning, to the end."""
    fleet.init(is_collective=True)
    loader = pictures(args, "train")
    steps = len(loader.dataset)
    if not steps:
        raise SystemExit(
            f"--batch_size {args.batch_size} times {fleet.worker_num()} worker(s) is more than "
            f"the {len(loader.dataset.images)} pictures of {args.data_dir}/train.txt."
        )
    network = Network(args)
    optimizer = fluid.optimizer.Momentum(
        learning_rate=rate(args, steps),
        momentum=args.momentum,
        regularization=fluid.regularizer.L2Decay(args.l2_decay),
    )
    strategy = strategy_of(args, network.checkpoints)
    fleet.distributed_optimizer(optimizer, strategy).minimize(network.loss)
    exe = fluid.Executor(fluid.CUDAPlace(int(os.environ.get("FLAGS_selected_gpus", 0))))  # noqa: SIM112
    exe.run(fluid.default_startup_program())
    program = fluid.default_main_program()
    if args.pretrained_model:
        load_pretrained(exe, args.pretrained_model, program)
    done = program_checkpoints.load(exe, args.checkpoint_dir, program)
    if done is not None:
        print(f"resuming after epoch {done} from {args.checkpoint_dir}", flush=True)
    val = pictures(args, "val") if args.do_test else None
    board = Board(args.tensorboard)
    for epoch in range(0 if done is None else done + 1, args.num_epochs):
        loader.dataset.set_epoch(epoch)
        start = time.perf_counter()
        for step, feed in zip(itertools.count(), fed(loader)):
            found = exe.run(program, feed=feed, fetch_list=network.results)
            values = [float(np.asarray(value).item()) for value in found]
            if step % args.log_every == 0 or step == steps - 1:
                print(f"[Epoch {epoch}, batch {step}] {line(values)}", flush=True)
                board.add("train", epoch * steps + step, values)
        speed = steps * args.batch_size * fleet.worker_num() / (time.perf_counter() - start)
        print(f"epoch {epoch}: {speed:.1f} pictures/s", flush=True)
        if val is not None:
            values = validate(exe, network, val)
            print(f"[Epoch {epoch}, test] {line(values)}", flush=True)
            board.add("test", (epoch + 1) * steps, values)
        if fleet.is_first_worker():
            program_checkpoints.save(exe, args.checkpoint_dir, epoch, program, keep_all=False)
    if fleet.is_first_worker():
        fluid.io.save_inference_model(
            args.model_save_dir,
            ["image"],
            [network.scores],
            exe,
            main_program=network.validation,
        )
        print(f"saved {args.model_save_dir}", flush=True)


if __name__ == "__main__":
    paddle.enable_static()
    arguments = parser.parse_args()
    print_arguments(arguments)
    train(arguments)
