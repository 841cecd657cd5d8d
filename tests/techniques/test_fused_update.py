"""One kernel for the whole update where the script left the choice open, and only there."""

import copy
from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from fleetx.step.fused_update import fuse_update

OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    "adam": (torch.optim.Adam, {"lr": 0.1}),
    "adamw": (torch.optim.AdamW, {"lr": 0.1}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.1}),
}


class Kernels(TorchDispatchMode):
    """Counts the operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))

    @property
    def fused(self) -> int:
        return sum(n for name, n in self.counts.items() if name.startswith("_fused"))


def make_net() -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(36, 2))
    return net.double()


def train(net: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 4) -> int:
    """Train; return how many fused kernels ran."""
    data = torch.Generator().manual_seed(1)
    with Kernels() as seen:
        for _ in range(steps):
            x = torch.randn(5, 3, 5, 5, generator=data, dtype=torch.float64)
            optimizer.zero_grad()
            net(x).square().sum().backward()
            optimizer.step()
    return seen.fused


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_same_parameters_as_one_by_one(name: str) -> None:
    cls, settings = OPTIMIZERS[name]
    plain, fused = make_net(), make_net()
    assert train(plain, cls(plain.parameters(), **settings)) == 0
    optimizer = cls(fused.parameters(), **settings)
    fuse_update(optimizer)
    fuse_update(optimizer)
    assert train(fused, optimizer) == 4
    for a, b in zip(plain.parameters(), fused.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    assert [group["fused"] for group in optimizer.param_groups] == [None]
    saved = optimizer.state_dict()["param_groups"][0]
    assert "_open" not in saved


@pytest.mark.parametrize("said", [{"fused": False}, {"foreach": False}, {"foreach": True}])
def test_what_the_script_said_stays(said: dict[str, bool]) -> None:
    net = make_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, **said)
    fuse_update(optimizer)
    assert train(net, optimizer) == 0


def test_layouts_that_differ_are_updated_one_by_one() -> None:
    torch.manual_seed(0)
    parameter = nn.Parameter(torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last))
    gradient = torch.randn(2, 3, 4, 4)
    other = copy.deepcopy(parameter)
    plain = torch.optim.SGD([other], lr=0.1, momentum=0.9, foreach=False)
    ours = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
    fuse_update(ours)
    parameter.grad, other.grad = gradient.clone(), gradient.clone()
    with Kernels() as seen:
        for _ in range(2):
            plain.step()
            ours.step()
    assert seen.fused == 0
    torch.testing.assert_close(parameter, other)
    # Equal layouts now, but momentum of the first steps has the other one.
    parameter.grad = gradient.to(memory_format=torch.channels_last)
    with Kernels() as seen:
        plain.step()
        ours.step()
    assert seen.fused == 0
    torch.testing.assert_close(parameter, other)


def test_sparse_gradients_and_other_optimizers_are_left_alone() -> None:
    table = nn.Embedding(10, 3, sparse=True)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    fuse_update(optimizer)
    before = table.weight.detach().clone()
    table(torch.tensor([1, 1])).sum().backward()
    optimizer.step()
    assert torch.equal(table.weight[0], before[0])
    torch.testing.assert_close(table.weight[1], before[1] - 0.2)
    other = torch.optim.RMSprop(make_net().parameters())
    fuse_update(other)
    assert not other._optimizer_step_pre_hooks
