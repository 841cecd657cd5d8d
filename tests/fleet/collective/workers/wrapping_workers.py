"""Cases of `wrapping.py`: other wrappers, and workers that differ."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from wrapping_model import RANK, Net, batch, begin, fleet, sgd, wrapped_step


# -- other wrappers -----------------------------------------------------------------------
def ddp_below():
    fleet.distributed_model(DistributedDataParallel(begin()))


def ddp_below_in_a_part():
    net = begin()
    net.first = DistributedDataParallel(net.first)
    fleet.distributed_model(net)


def twice():
    fleet.distributed_model(fleet.distributed_model(begin()))


def fully_shard_below():
    from torch.distributed.fsdp import fully_shard

    net = begin()
    fully_shard(net.first)
    fleet.distributed_model(net)


def fully_shard_around():
    from torch.distributed.fsdp import fully_shard

    model = fleet.distributed_model(begin())
    fully_shard(model.module)
    model(batch())


def ddp_around():
    model = fleet.distributed_model(begin())
    DistributedDataParallel(model)(batch())


def ddp_around_localsgd():
    model = fleet.distributed_model(begin(localsgd=True))
    DistributedDataParallel(model)(batch())


def ddp_beside_localsgd():
    net = begin(localsgd=True)
    fleet.distributed_model(net)
    DistributedDataParallel(net)(batch())


def ddp_around_a_larger_model():
    model = fleet.distributed_model(begin())
    DistributedDataParallel(nn.Sequential(model, nn.Identity()))(batch())


# -- workers that differ ------------------------------------------------------------------
def dtypes():
    begin()
    fleet.distributed_model(Net(torch.float64 if RANK else torch.float32))


def shapes():
    net = begin()
    if RANK:
        net.second = nn.Linear(4, 2)
    fleet.distributed_model(net)


def names():
    net = begin()
    if RANK:
        net.third, net.second = net.second, nn.Identity()
    fleet.distributed_model(net)


def frozen():
    net = begin()
    net.first.weight.requires_grad_(RANK == 0)
    fleet.distributed_model(net)


def buffers():
    net = begin()
    net.register_buffer("seen", torch.zeros(1 + RANK))
    fleet.distributed_model(net)


def shapes_localsgd():
    net = begin(localsgd=True)
    if RANK:
        net.second = nn.Linear(4, 2)
    fleet.distributed_model(net)


def optimizers():
    model = fleet.distributed_model(begin())
    sgd(model, kind=torch.optim.Adam if RANK else torch.optim.SGD)


def learning_rates():
    sgd(fleet.distributed_model(begin()), lr=0.1 * (1 + RANK))


def groups():
    net = fleet.distributed_model(begin())
    made = [{"params": net.first.parameters()}, {"params": net.second.parameters()}]
    fleet.distributed_optimizer(torch.optim.SGD(made[: 1 + RANK], lr=0.1))


def calls():
    net = begin()
    if RANK:
        sgd(net)
    else:
        fleet.distributed_model(net)


def a_schedule():
    """Rates may differ later; that is the script's affair."""
    model = fleet.distributed_model(begin())
    optimizer = sgd(model)
    optimizer.set_lr(0.1 * (1 + RANK))
    wrapped_step(model, optimizer)
    return optimizer.get_lr() == 0.1 * (1 + RANK)
