"""Fashion-MNIST on four workers in two machines, a network of 6.5 MB. Arguments: `fsdp` or `fleet`,
the settings of the strategy as JSON, the data file, a seed, and the steps of a training; with 0,
it runs the steps that are requested."""

import sys

import torch
import torch.distributed as dist
from group_loop import serve_group, strategy_of
from local_sgd_worker import batches, load, make_net, rate, sgd
from loop import tell
from torch import nn

KIND, SEED, STEPS = sys.argv[1], int(sys.argv[4]), int(sys.argv[5])
TASK = {"seed": SEED, "steps": STEPS or 1408, "lr": 0.06, "decay": 5e-4}
torch.set_num_threads(1)
torch.manual_seed(SEED)
net = make_net(hidden=2048)
if KIND == "fleet":
    from fleetx import fleet

    fleet.init(is_collective=True, strategy=strategy_of(fleet))
    model = fleet.distributed_model(net)
    optimizer = fleet.distributed_optimizer(sgd(model, TASK))
else:
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    model = fully_shard(net)
    optimizer = sgd(model, TASK)
rank, workers = dist.get_rank(), dist.get_world_size()
data = load(sys.argv[3])
source = batches(data, TASK, rank, workers)


def step(number):
    """Train on the next batch."""
    for group in optimizer.param_groups:
        group["lr"] = rate(TASK, number)
    x, y = next(source)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


@torch.no_grad()
def accuracy():
    """Return the accuracy of a whole copy in percent; statistics are averaged over workers."""
    state = {
        name: value.full_tensor() if hasattr(value, "full_tensor") else value.clone()
        for name, value in net.state_dict().items()
    }
    for value in state.values():
        if value.is_floating_point():
            dist.all_reduce(value)
            value /= workers
    whole = make_net(hidden=2048).eval()
    whole.load_state_dict(state)
    right = sum(
        int((whole(x).argmax(1) == y).sum())
        for x, y in zip(data["test_x"].split(500), data["test_y"].split(500), strict=True)
    )
    return 100.0 * right / len(data["test_y"])


if STEPS:
    for number in range(STEPS):
        step(number)
    found = accuracy()
    if rank == 0:
        tell(accuracy=found)
    sys.stdin.read()
else:
    serve_group(step, 16, rank, dist.barrier)
dist.barrier()
if KIND != "fleet":
    dist.destroy_process_group()
