"""A case of `wrapping.py`: what a script sees of a wrapped model."""

import copy
import inspect
import pickle

import torch
from torch import nn
from wrapping_model import Net, begin, fleet


def alike():
    """Everything that a script can see of a wrapped model, but for numbers that are trained."""
    found = {}
    for case, switches in {"plain": {}, "localsgd": {"localsgd": True}}.items():
        net = begin(**switches)
        torch.manual_seed(5)
        net.load_state_dict(Net().state_dict())
        model = fleet.distributed_model(net)
        found[case] = _look(model, net)
    return found


def _look(model, net):
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
        seen[f"set {name}"] = _refused(lambda n=name, v=value: setattr(model, n, v))
    seen["module cannot be set"] = _refused(lambda: setattr(model, "module", nn.Linear(1, 1)))
    state = {name: torch.zeros_like(t) for name, t in model.state_dict().items()}
    seen["assign"] = _refused(lambda: model.load_state_dict(state, assign=True))
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


def _refused(call):
    try:
        call()
    except RuntimeError as error:
        return str(error)
    return None
