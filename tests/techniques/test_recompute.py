"""recompute: training is the same bit for bit, with activations computed again."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from running import run
from torch import nn

from fleetx import fleet
from fleetx.techniques.checkpointed import Checkpointed
from fleetx.techniques.recompute import Recomputed, find_modules

pytestmark = pytest.mark.usefixtures("fresh_fleet")


class Block(nn.Module):
    """Everything that may go wrong a second time: statistics, random numbers, power iterations."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.3)
        self.runs = 0

    def forward(self, x: torch.Tensor, *, factor: float = 1.0) -> torch.Tensor:
        self.runs += 1
        return x + factor * self.drop(torch.tanh(self.norm(self.inner(x))))


class Net(nn.Module):
    """Four blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x, factor=0.5)
        return self.head(x).mean()


@pytest.fixture
def net() -> Net:
    torch.manual_seed(3)
    return Net()


def train(model: nn.Module, steps: int = 4, **options: Any) -> tuple[list[float], dict[str, Any]]:
    torch.manual_seed(5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(steps):
        loss = model(torch.randn(6, 8))
        loss.backward(**options)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, {**model.state_dict(), "generator": torch.get_rng_state()}


def assert_same(first: tuple[list[float], Any], second: tuple[list[float], Any]) -> None:
    assert first[0] == second[0]
    for name, value in first[1].items():
        assert torch.equal(value, second[1][name]), name


@pytest.mark.slow
def test_training_is_the_same_bit_for_bit(net: Net) -> None:
    twin = Recomputed(["blocks.*"]).prepare(copy.deepcopy(net))
    assert_same(train(net), train(twin))
    assert [block.runs for block in twin.blocks] == [8, 8, 8, 8]


@pytest.mark.slow
def test_backward_may_run_twice(net: Net) -> None:
    twin = Recomputed(["Block"]).prepare(copy.deepcopy(net))
    results = []
    for model in (net, twin):
        torch.manual_seed(5)
        loss = model(torch.randn(6, 8))
        loss.backward(retain_graph=True)
        loss.backward()
        results.append([p.grad for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_fewer_activations_are_kept(net: Net) -> None:
    def kept(model: nn.Module) -> int:
        sizes = {}

        def note(x: torch.Tensor) -> torch.Tensor:
            sizes[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
            return x

        with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
            model(torch.randn(6000, 8))
        return sum(sizes.values())

    twin = Recomputed(["blocks.*"]).prepare(copy.deepcopy(net))
    assert kept(twin) < 0.35 * kept(net)


@pytest.mark.slow
def test_nothing_runs_again_without_gradients(net: Net) -> None:
    model = Recomputed(["blocks.0"]).prepare(net)
    with torch.no_grad():
        model(torch.randn(6, 8))
    assert model.blocks[0].runs == 1


@pytest.mark.slow
def test_a_copy_of_the_model_is_independent(net: Net) -> None:
    model = Recomputed(["blocks.0"]).prepare(net)
    twin = copy.deepcopy(model)
    twin(torch.randn(6, 8)).backward()
    assert (model.blocks[0].runs, twin.blocks[0].runs) == (0, 2)
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (["blocks.1"], ["blocks.1"]),
        (["blocks.[02]"], ["blocks.0", "blocks.2"]),
        (["BatchNorm1d", "head"], [*(f"blocks.{i}.norm" for i in range(4)), "head"]),
        (["_BatchNorm"], [f"blocks.{i}.norm" for i in range(4)]),
    ],
)
def test_modules_are_found_by_name_pattern_or_class(
    net: Net, wanted: list[str], found: list[str]
) -> None:
    assert list(find_modules(net, wanted)) == found


def test_a_name_that_nothing_has_is_refused_with_near_names(net: Net) -> None:
    with pytest.raises(ValueError, match=r"'block\.3'.* similar names are .*blocks\.3"):
        find_modules(net, ["block.3"])


@pytest.mark.slow
def test_a_buffer_that_changes_later_is_refused() -> None:
    class Late(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)
            self.register_buffer("calls", torch.zeros(1))
            self.is_late = False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.is_late:
                self.calls += 1
            return self.linear(x)

    model = Late()
    model.forward = Checkpointed(model, "late")
    model(torch.ones(1, 2)).sum().backward()
    model.is_late = True
    with pytest.raises(RuntimeError, match="'late' has changed its buffer 'calls'"):
        model(torch.ones(1, 2))


@pytest.mark.slow
def test_offloaded_checkpoints_give_the_same(net: Net) -> None:
    twin = copy.deepcopy(net)
    for name, block in find_modules(twin, ["Block"]).items():
        block.forward = Checkpointed(block, name, offload=True)
    assert_same(train(net), train(twin))


def test_offload_without_another_device_is_refused(net: Net) -> None:
    with pytest.raises(ValueError, match=r"enable_offload.* the model is there already"):
        Recomputed(["Block"], offload=True).prepare(net)


def strategy(**settings: Any) -> fleet.DistributedStrategy:
    made = fleet.DistributedStrategy()
    for name, value in settings.items():
        setattr(made, name, value)
    return made


@pytest.mark.slow
def test_a_strategy_takes_classes(net: Net) -> None:
    fleet.init(
        is_collective=True,
        strategy=strategy(recompute=True, recompute_configs={"checkpoints": [Block]}),
    )
    twin = fleet.distributed_model(copy.deepcopy(net))
    optimizer = fleet.distributed_optimizer(torch.optim.SGD(twin.parameters(), lr=0.1))
    assert_same(train(net), train(twin))
    assert "recompute" in str(fleet.explain())
    assert optimizer.train_step.is_plain


def test_a_strategy_without_checkpoints_is_refused(net: Net) -> None:
    fleet.init(is_collective=True, strategy=strategy(recompute=True))
    with pytest.raises(ValueError, match=r"without recompute_configs\['checkpoints'\]"):
        fleet.distributed_model(net)


@pytest.mark.slow
@pytest.mark.parametrize("lists", [{}, {"custom_black_list": ["tanh"]}])
def test_with_amp_it_is_the_same_as_amp_alone(net: Net, lists: dict[str, Any]) -> None:
    results = []
    for recompute in (False, True):
        fleet.init(
            is_collective=True,
            strategy=strategy(
                amp=True,
                amp_configs={"use_pure_bf16": True, **lists},
                recompute=recompute,
                recompute_configs={"checkpoints": ["blocks.*"]},
            ),
        )
        model = fleet.distributed_model(copy.deepcopy(net))
        fleet.distributed_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        results.append(train(model))
    assert_same(*results)


@pytest.mark.slow
def test_two_workers_train_as_without(tmp_path: Path) -> None:
    for result in run("recompute.py", tmp_path):
        for name, (plain, again) in result.items():
            assert plain == again, name


@pytest.mark.slow
def test_the_optimizer_of_the_paddle_package_recomputes_by_its_strategy() -> None:
    paddle = pytest.importorskip("paddle")
    from paddle.distributed.fleet.meta_optimizers import RecomputeOptimizer

    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup), paddle.utils.unique_name.guard():
        hidden = paddle.static.nn.fc(paddle.static.data("x", [None, 4]), 3, activation="tanh")
        loss = paddle.mean(paddle.static.nn.fc(hidden, 1))
        optimizer = RecomputeOptimizer(paddle.optimizer.SGD(0.1))
        with pytest.raises(RuntimeError, match="user_defined_strategy"):
            optimizer.backward(loss)
        optimizer.user_defined_strategy = strategy(recompute_configs={"checkpoints": [hidden]})
        pairs = optimizer.backward(loss, startup)
        optimizer.apply_gradients(pairs)
    types = [op.type for op in main.global_block().ops]
    assert types.count("sgd") == 4
    assert any(op.recomputes for op in main.global_block().ops)
