"""Two workers that would train wrongly in several ways; each writes the error it got."""

import copy
import inspect
import json
import logging
import os
import pickle
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from fleetx import comm
from fleetx.fleet import DistributedStrategy
from fleetx.fleet.session import Fleet

RANK = int(os.environ.get("PADDLE_TRAINER_ID", "0"))
fleet = Fleet()


class Net(nn.Module):
    """Two layers, a number that forward reads, and a method beside forward."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.first = nn.Linear(3, 4, dtype=dtype)
        self.second = nn.Linear(4, 1, dtype=dtype)
        self.norm = nn.BatchNorm1d(4, dtype=dtype)
        self.dim = 4
        self.temperature = 1.0
        self.skips = False

    def forward(self, x):
        hidden = self.norm(torch.tanh(self.first(x)))
        if self.skips:
            return hidden.sum() / self.temperature
        return self.second(hidden).sum() / self.temperature

    def encode(self, x):
        return self.first(x).sum()


def begin(**switches):
    strategy = DistributedStrategy()
    for name, value in switches.items():
        setattr(strategy, name, value)
    fleet.init(is_collective=True, strategy=strategy, timeout_seconds=60)
    torch.manual_seed(5 + RANK)
    return Net()


def sgd(model, lr=0.1, kind=torch.optim.SGD):
    return fleet.distributed_optimizer(kind(model.parameters(), lr=lr))


def batch():
    return torch.randn(6, 3, generator=torch.Generator().manual_seed(RANK))


def spread(model):
    """Return how far the workers' parameters are apart."""
    flat = nn.utils.parameters_to_vector(model.parameters()).detach()
    parts = comm.all_gather(flat)
    return float((parts[0] - parts[1]).abs().max())


def wrapped_step(model, optimizer):
    optimizer.zero_grad()
    model(batch()).backward()
    optimizer.step()


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


# -- updates that leave out what the strategy does --------------------------------------
def train(model, optimizer, steps=3):
    for _ in range(steps):
        wrapped_step(model, optimizer)


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


# -- one worker and two -------------------------------------------------------------------
def alike():
    """Everything that a script can see of a wrapped model, but for numbers that are trained."""
    found = {}
    for case, switches in {"plain": {}, "localsgd": {"localsgd": True}}.items():
        net = begin(**switches)
        torch.manual_seed(5)
        net.load_state_dict(Net().state_dict())
        model = fleet.distributed_model(net)
        found[case] = look(model, net)
    return found


def look(model, net):
    seen = {
        "module": model.module is net,
        "parameters": [name for name, _ in model.named_parameters()],
        "buffers": [name for name, _ in model.named_buffers()],
        "modules": [name for name, _ in model.named_modules()],
        "children": [type(child).__name__ for child in model.children()],
        "state": list(model.state_dict()),
        "same": all(a is b for a, b in zip(model.parameters(), net.parameters(), strict=True)),
        "own attribute": model.dim,
        "signature": str(inspect.signature(model.forward)),
    }
    x = torch.ones(2, 3)
    model.eval()
    seen["eval"] = [model.training, net.training, net.norm.training]
    before = float(model(x))
    model.temperature = 100.0
    seen["temperature"] = [net.temperature, round(before / float(model(x)), 3)]
    model._mine = 1
    seen["set"] = [net._mine, hasattr(model, "_mine")]
    del model._mine
    seen["deleted"] = [hasattr(net, "_mine"), hasattr(model, "_mine")]
    model.register_buffer("seen", torch.zeros(1))
    seen["registered"] = "seen" in dict(net.named_buffers())
    model.activation = nn.ReLU()
    seen["without parameters"] = isinstance(net.activation, nn.ReLU)
    for name, value in {"head": nn.Linear(1, 1), "scale": nn.Parameter(torch.ones(1))}.items():
        seen[f"set {name}"] = refused(lambda n=name, v=value: setattr(model, n, v))
    seen["module cannot be set"] = refused(lambda: setattr(model, "module", nn.Linear(1, 1)))
    state = {name: torch.zeros_like(t) for name, t in model.state_dict().items()}
    seen["assign"] = refused(lambda: model.load_state_dict(state, assign=True))
    copied, pickled = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    seen["copies"] = [float(m(x)) == float(model(x)) for m in (copied, pickled)]
    copied.first.weight.data.zero_()
    seen["independent"] = float(copied(x)) != float(model(x))
    model.load_state_dict(state)
    seen["loaded"] = float(model(x))
    calls = []
    handle = model.register_forward_hook(lambda *_: calls.append(1))
    model(x)
    handle.remove()
    model(x)
    seen["hook"] = len(calls)
    model.apply(lambda m: calls.append(2))
    seen["apply"] = calls.count(2)
    model.train()
    seen["train"] = [model.training, net.norm.training]
    model.requires_grad_(False)
    seen["frozen"] = [p.requires_grad for p in net.parameters()]
    model.double()
    seen["dtype"] = str(net.first.weight.dtype)
    with model.no_sync():
        pass
    boxes = fleet.distributed_model(nn.Sequential(nn.Linear(1, 1), nn.ReLU()))
    seen["sequence"] = [len(boxes), type(boxes[1]).__name__, len(list(boxes)), bool(boxes)]
    return seen


def refused(call):
    try:
        call()
    except RuntimeError as error:
        return str(error)
    return None


CASES = {
    name: case
    for name, case in list(globals().items())
    if callable(case)
    and getattr(case, "__module__", "") == "__main__"
    and not isinstance(case, type)
    and name
    not in ("begin", "sgd", "batch", "spread", "wrapped_step", "train", "look", "refused", "main")
}


def main():
    chosen = sys.argv[2:] or list(CASES)
    told = {}
    for name in chosen:
        print(name, flush=True)
        try:
            told[name] = CASES[name]()
        except (RuntimeError, TypeError, ValueError) as error:
            told[name] = f"{type(error).__name__}: {error}"
    (Path(sys.argv[1]) / f"{RANK}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
