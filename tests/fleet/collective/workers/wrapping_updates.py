"""Cases of `wrapping.py`: updates that leave out what the strategy does."""

import copy

import torch
from torch import nn
from wrapping_model import Net, batch, begin, fleet, sgd, spread, train, wrapped_step

from fleetx import comm


def no_optimizer_localsgd():
    model = fleet.distributed_model(begin(localsgd=True))
    train(model, torch.optim.SGD(model.parameters(), lr=0.1))


def no_optimizer_gradient_merge():
    model = fleet.distributed_model(
        begin(gradient_merge=True, gradient_merge_configs={"k_steps": 2})
    )
    train(model, torch.optim.SGD(model.parameters(), lr=0.1))


def no_optimizer_stop_on_nan():
    model = fleet.distributed_model(begin(stop_on_nan=True))
    train(model, torch.optim.SGD(model.parameters(), lr=0.1))


def the_optimizer_inside_lars():
    model = fleet.distributed_model(begin(lars=True))
    inside = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    fleet.distributed_optimizer(inside)
    train(model, inside)


def the_optimizer_inside_between_two_steps():
    model = fleet.distributed_model(begin(localsgd=True))
    inside = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = fleet.distributed_optimizer(inside)
    train(model, optimizer)
    inside.step()


def the_optimizer_inside_without_techniques():
    """Backward averages, so that any optimizer will do."""
    net = begin()
    model = fleet.distributed_model(net)
    train(model, torch.optim.SGD(net.parameters(), lr=0.1))
    inside = torch.optim.SGD(net.parameters(), lr=0.1)
    fleet.distributed_optimizer(inside)
    train(model, inside)
    return spread(model)


class Around(torch.optim.Optimizer):
    """An optimizer that lets another one update."""

    def __init__(self, inner):
        super().__init__(inner.param_groups, {})
        self.inner = inner

    def step(self):
        self.inner.step()


def an_optimizer_around():
    model = fleet.distributed_model(begin(localsgd=True, localsgd_configs={"k_steps": 1}))
    train(model, Around(sgd(model)))
    return spread(model)


def a_strategy_of_an_earlier_session():
    begin(localsgd=True)
    net = Net()
    model = fleet.distributed_model(net)
    sgd(model)
    begin()
    train(net, torch.optim.SGD(net.parameters(), lr=0.1))
    return 0


def lbfgs():
    """Each worker's loss differs: all must decide alike how often to look at it."""
    net = begin()
    model = fleet.distributed_model(net)
    model.eval()
    alone = copy.deepcopy(model)
    target, everything = 1.0 + batch().mean(), torch.cat(comm.all_gather(batch()))
    targets = comm.all_gather(target)

    def close(optimizer, loss):
        def closure():
            optimizer.zero_grad()
            value = loss()
            value.backward()
            return value

        return closure

    def square(used, x, wanted):
        return (used(x) - wanted).square()

    def both():
        pairs = zip(everything.split(6), targets, strict=True)
        return sum(square(alone, *pair) for pair in pairs) / 2

    optimizer = fleet.distributed_optimizer(torch.optim.LBFGS(net.parameters()))
    optimizer.step(close(optimizer, lambda: square(model, batch(), target)))
    other = torch.optim.LBFGS(alone.parameters())
    other.step(close(other, both))
    for mine, large in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(mine, large, rtol=1e-3, atol=1e-4)
    return spread(model)


def lbfgs_and_a_technique():
    model = fleet.distributed_model(begin(localsgd=True))
    optimizer = fleet.distributed_optimizer(torch.optim.LBFGS(model.parameters()))
    optimizer.step(lambda: model(batch()))


def added_parameters():
    """Groups that are added later are trained by the same techniques."""
    far = {}
    for name, settings in ADDED.items():
        net = begin(**settings)
        model = fleet.distributed_model(net)
        first = [*net.first.parameters(), *net.norm.parameters()]
        optimizer = fleet.distributed_optimizer(torch.optim.SGD(first, lr=0.1, momentum=0.9))
        train(model, optimizer, 2)
        optimizer.add_param_group({"params": list(net.second.parameters())})
        before = net.second.weight.detach().clone()
        train(model, optimizer, 4)
        assert not torch.equal(before, net.second.weight)
        fleet.synchronize_model()
        far[name] = spread(model)
    return far


ADDED = {
    "plain": {},
    "gradient_merge": {"gradient_merge": True, "gradient_merge_configs": {"k_steps": 2}},
    "localsgd": {"localsgd": True, "localsgd_configs": {"k_steps": 3}},
    "dgc": {"dgc": True},
}


def added_parameters_of_another_model():
    net = begin()
    model, other = fleet.distributed_model(net), nn.Linear(1, 1)
    optimizer = sgd(net)
    wrapped_step(model, optimizer)
    optimizer.add_param_group({"params": list(other.parameters())})
    wrapped_step(model, optimizer)
