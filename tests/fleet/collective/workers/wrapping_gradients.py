"""Cases of `wrapping.py`: no distributed model, and gradients that are not averaged."""

import copy
import logging

import torch
from torch.nn.parallel import DistributedDataParallel
from wrapping_model import batch, begin, fleet, sgd, spread, wrapped_step

from fleetx import comm


# -- an optimizer without a distributed model ---------------------------------------------
def no_model():
    net = begin()
    wrapped_step(net, sgd(net))


def no_model_localsgd():
    net = begin(localsgd=True)
    wrapped_step(net, sgd(net))


def no_model_gradient_merge():
    net = begin(gradient_merge=True, gradient_merge_configs={"k_steps": 2})
    wrapped_step(net, sgd(net))


def plain_ddp():
    net = begin()
    wrapped_step(DistributedDataParallel(net), sgd(net))


def two_optimizers_of_one_model():
    net = begin()
    model = fleet.distributed_model(net)
    one = fleet.distributed_optimizer(torch.optim.SGD(net.first.parameters(), lr=0.1))
    rest = [*net.second.parameters(), *net.norm.parameters()]
    two = fleet.distributed_optimizer(torch.optim.SGD(rest, lr=0.1))
    for _ in range(2):
        model(batch()).backward()
        one.step()
        two.step()
        one.zero_grad()
        two.zero_grad()
    return spread(model)


# -- gradients that are not averaged ------------------------------------------------------
def raw_module():
    net = begin()
    model = fleet.distributed_model(net)
    optimizer = sgd(model)
    wrapped_step(model, optimizer)
    with torch.no_grad():
        net(batch())  # an evaluation
    net(batch()).backward()
    optimizer.zero_grad()  # an unused gradient
    wrapped_step(model, optimizer)
    apart = spread(model)
    optimizer.zero_grad()
    net(batch()).backward()
    try:
        optimizer.step()
    except RuntimeError as error:
        return [apart, spread(model), str(error)]
    return "not refused"


def raw_beside_wrapped_in_one_loss():
    net = begin()
    model = fleet.distributed_model(net)
    optimizer = sgd(model)
    (model(batch()) + net(2 * batch())).backward()
    optimizer.step()
    return spread(model)


def method():
    model = fleet.distributed_model(begin())
    optimizer = sgd(model)
    wrapped_step(model, optimizer)
    model(batch()).backward()
    model.encode(batch()).backward()
    optimizer.step()


def backward_twice():
    model = fleet.distributed_model(begin())
    optimizer = sgd(model)
    loss = model(batch())
    loss.backward(retain_graph=True)
    loss.backward()
    optimizer.step()


def inside_a_closure():
    net = begin()
    model = fleet.distributed_model(net)

    def closure():
        loss = net(batch())
        loss.backward()
        return loss

    sgd(model).step(closure)


def accumulated():
    """Gradients of several passes: as of one large batch, with no warning."""
    net = begin()
    model = fleet.distributed_model(net)
    model.eval()
    alone = copy.deepcopy(model)
    optimizer = sgd(model)
    with model.no_sync():
        model(batch()).backward()
    model(2 * batch()).backward()
    optimizer.step()
    (alone(batch()) + alone(2 * batch())).backward()
    for p in alone.parameters():
        if p.grad is not None:
            p.data -= 0.1 * comm.all_reduce(p.grad) / 2
    for mine, other in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(mine, other)
    return spread(model)


def never_averaged():
    model = fleet.distributed_model(begin())
    optimizer = sgd(model)
    told = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())
    logging.getLogger("fleetx.fleet").addHandler(handler)
    for _ in range(2):
        optimizer.zero_grad()
        with model.no_sync():
            model(batch()).backward()
        optimizer.step()
    logging.getLogger("fleetx.fleet").removeHandler(handler)
    return told


def thawed():
    net = begin()
    net.first.requires_grad_(False)
    model = fleet.distributed_model(net)
    optimizer = sgd(model)
    wrapped_step(model, optimizer)
    net.first.requires_grad_(True)
    wrapped_step(model, optimizer)


def unused():
    net = begin()
    net.skips = True
    model = fleet.distributed_model(net)
    optimizer = sgd(model)
    wrapped_step(model, optimizer)


def unused_and_another_optimizer():
    net = begin()
    net.skips = True
    model = fleet.distributed_model(net)
    for _ in range(2):
        model(batch()).backward()


def unused_is_allowed():
    net = begin(find_unused_parameters=True)
    net.skips = True
    model = fleet.distributed_model(net)
    optimizer = sgd(model)
    for _ in range(2):
        wrapped_step(model, optimizer)
    return spread(model)


def compiled():
    model = fleet.distributed_model(begin())
    fast = torch.compile(model, backend="eager")
    optimizer = sgd(model)
    for _ in range(2):
        wrapped_step(fast, optimizer)
    return spread(model)
