"""One of four workers that train a small convolutional network on Fashion-MNIST, as often and in
whatever way each line of the input (JSON) requests; rank 0 reports the results."""

import json
import math
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
from loop import tell
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel

from fleetx import fleet

BATCH = 32  # per worker


def make_net(hidden: int = 192) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2, padding=2, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 7 * 7, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 10),
    )


def load(path: str) -> dict[str, torch.Tensor]:
    raw = np.load(path)
    found = {name: torch.from_numpy(raw[name]) for name in raw.files}
    for part in ("train_x", "test_x"):
        found[part] = found[part].unsqueeze(1).float().div_(255).sub_(0.286).div_(0.353)
    for part in ("train_y", "test_y"):
        found[part] = found[part].long()
    return found


def divided(data, task):
    """Return the data; for a task that holds out training images, these replace the test images."""
    count = task.get("held_out", 0)
    if not count:
        return data
    found = {}
    for part in ("x", "y"):
        found[f"train_{part}"] = data[f"train_{part}"][:-count]
        found[f"test_{part}"] = data[f"train_{part}"][-count:]
    return found


class Plain:
    """A loop without Fleet; calls `after` after each step."""

    def __init__(self, net, optimizer, after=lambda: None):
        self.net, self.optimizer, self.after = net, optimizer, after

    def step(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.after()


class WithFleet(Plain):
    """A loop with Fleet."""

    def step(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step(loss=loss)


def sgd(net, task):
    return torch.optim.SGD(
        net.parameters(),
        lr=task["lr"],
        momentum=task.get("momentum", 0.9),
        weight_decay=task["decay"],
    )


def make(task) -> Plain:
    """Return the network and the training loop that a task requests."""
    torch.manual_seed(task["seed"])
    net = make_net(task.get("hidden", 192))
    if task["kind"] == "ddp":
        # torch's hook has failed over Gloo with more than one bucket in flight.
        more = {"bucket_cap_mb": 64} if "power_sgd" in task else {}
        # Statistics are not broadcast in every step, which would only slow it down.
        wrapped = DistributedDataParallel(
            net, gradient_as_bucket_view=True, forward_sync_buffers=False, **more
        )
        if "power_sgd" in task:
            state = PowerSGDState(None, orthogonalization_epsilon=1e-8, **task["power_sgd"])
            wrapped.register_comm_hook(state, powerSGD_hook)
        return Plain(wrapped, sgd(net, task))
    if task["kind"] == "torch":
        averager = PeriodicModelAverager(period=task["k"], warmup_steps=1)
        return Plain(net, sgd(net, task), lambda: averager.average_parameters(net.parameters()))
    if task["kind"] == "torchft":
        from torchft_diloco import wrap  # an optional peer

        loop = Plain(net, sgd(net, task))
        outer = torch.optim.SGD(
            net.parameters(), lr=1.0, momentum=task["outer_momentum"], nesterov=False
        )
        loop.diloco = wrap(net, loop.optimizer, outer, task)
        return loop
    strategy = fleet.DistributedStrategy()
    for name, value in task["strategy"].items():
        setattr(strategy, name, value)
    fleet.init(is_collective=True, strategy=strategy)
    net = fleet.distributed_model(net)
    return WithFleet(net, fleet.distributed_optimizer(sgd(net, task)))


def rate(task, step):
    """Return the learning rate of a step: cosine annealing to 0."""
    return task["lr"] * 0.5 * (1 + math.cos(math.pi * step / task["steps"]))


def batches(data, task, rank, workers):
    """Yield this worker's batches: a new order in every epoch, the same on all workers."""
    order = torch.Generator().manual_seed(1000 + task["seed"])
    size, count = BATCH * workers, len(data["train_y"])
    while True:
        found = torch.randperm(count, generator=order)
        for start in range(0, count - size + 1, size):
            mine = found[start + rank * BATCH : start + (rank + 1) * BATCH]
            yield data["train_x"][mine], data["train_y"][mine]


def train(loop, data, task, rank, workers):
    """Train; return seconds and the mean interval. The first steps, one unless the task says
    otherwise, are not counted."""
    untimed = task.get("untimed", 1)
    source = batches(data, task, rank, workers)
    loss_of = nn.CrossEntropyLoss()
    intervals, start = [], 0.0
    for step in range(task["steps"] + untimed):
        if step == untimed:  # buffers are allocated, and all workers have the same parameters
            dist.barrier()
            start = time.perf_counter()
        for group in loop.optimizer.param_groups:
            group["lr"] = rate(task, step)
        x, y = next(source)
        loop.step(loss_of(loop.net(x), y))
        if task["kind"] == "fleet":
            intervals.append(getattr(loop.optimizer.train_step.param_sync, "k_steps", 1))
    dist.barrier()
    result = {"seconds": time.perf_counter() - start, "steps": task["steps"]}
    if intervals:
        result["interval"] = len(intervals) / sum(1 / k for k in intervals)
    return result


@torch.no_grad()
def accuracy(data, net, rank, workers):
    """Return the accuracy of the averaged parameters, in percent; each worker tests a shard."""
    for tensor in [*net.parameters(), *(b for b in net.buffers() if b.is_floating_point())]:
        dist.all_reduce(tensor.data.div_(workers))
    net.eval()
    x, y = data["test_x"][rank::workers], data["test_y"][rank::workers]
    right = sum(
        (net(a).argmax(1) == b).sum() for a, b in zip(x.split(500), y.split(500), strict=True)
    )
    dist.all_reduce(right)
    return 100.0 * right.item() / len(data["test_y"])


def main():
    fleet.init(is_collective=True)
    rank, workers = fleet.worker_index(), fleet.worker_num()
    data = load(sys.argv[1])
    if rank == 0:
        values = sum(p.numel() for p in make_net().parameters())
        tell(parameters=values, batch=BATCH * workers)
    loop = None
    for line in sys.stdin:
        task = json.loads(line)
        if task["kind"] == "test":  # the network that was trained last
            result = {"accuracy": accuracy(divided(data, task), loop.net, rank, workers)}
        else:
            loop = make(task)
            result = train(loop, divided(data, task), task, rank, workers)
        if rank == 0:
            tell(**result)


if __name__ == "__main__":
    main()
