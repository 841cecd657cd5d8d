"""Models that would train wrongly are refused; wrapped models look the same with any number."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import warm_start
from fleetx.fleet import DistributedStrategy
from fleetx.fleet.collective.distributed_model import LocalModel
from fleetx.fleet.session import Fleet
from waiting import LIMIT

pytestmark = pytest.mark.usefixtures("fresh_fleet")

SCRIPT = str(Path(__file__).parent / "workers" / "wrapping.py")


def run(folder: Path, workers: int, *cases: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "fleetx.launch", "--nproc_per_node", str(workers)]
    command += ["--log_dir", str(folder / "log"), SCRIPT, str(folder), *cases]
    environment = warm_start.environment()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(workers)]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what two workers were told in every case: the same."""
    first, second = run(tmp_path_factory.mktemp("wrapping"), 2)
    assert first == second
    return first


@pytest.mark.parametrize(
    "case", ["no_model", "no_model_localsgd", "no_model_gradient_merge", "plain_ddp"]
)
def test_an_optimizer_needs_a_distributed_model(told: dict[str, Any], case: str) -> None:
    assert told[case].startswith("RuntimeError: the optimizer's parameters are in no model")
    assert "model = fleet.distributed_model(model)" in told[case]


def test_gradients_that_are_not_averaged_are_not_used(told: dict[str, Any]) -> None:
    apart_before, apart, message = told["raw_module"]
    assert apart_before == apart == 0
    assert "'first.weight', 'first.bias'" in message
    for case in ("method", "backward_twice", "inside_a_closure"):
        assert told[case].startswith("RuntimeError: backward reached parameters 'first.weight'")
        assert "call that model, not the module inside" in told[case]
    assert "'second.weight'" not in told["method"]
    assert "did not require gradients when fleet.distributed_model was called" in told["thawed"]


def test_what_is_right_stays_allowed(told: dict[str, Any]) -> None:
    for case in (
        "two_optimizers_of_one_model",
        "raw_beside_wrapped_in_one_loss",
        "accumulated",
        "unused_is_allowed",
        "compiled",
        "the_optimizer_inside_without_techniques",
        "an_optimizer_around",
        "lbfgs",
        "a_strategy_of_an_earlier_session",
    ):
        assert told[case] == 0, case
    assert told["a_schedule"] is True


@pytest.mark.parametrize(
    ("case", "technique"),
    [
        ("no_optimizer_localsgd", "localsgd"),
        ("no_optimizer_gradient_merge", "gradient_merge"),
        ("no_optimizer_stop_on_nan", "stop_on_nan"),
        ("the_optimizer_inside_lars", "lars"),
        ("the_optimizer_inside_between_two_steps", "localsgd"),
    ],
)
def test_an_update_without_the_techniques_is_refused(
    told: dict[str, Any], case: str, technique: str
) -> None:
    assert told[case].startswith("RuntimeError: SGD.step() was called for a model that the strat")
    assert f"trains with {technique}, but that happens in step() of the optimizer" in told[case]


def test_an_optimizer_that_looks_several_times_needs_a_plain_step(told: dict[str, Any]) -> None:
    assert told["lbfgs_and_a_technique"].startswith("TypeError: LBFGS runs backward several times")


def test_parameters_that_are_added_later_are_exchanged(told: dict[str, Any]) -> None:
    assert told["added_parameters"] == dict.fromkeys(told["added_parameters"], 0)
    assert len(told["added_parameters"]) == 4
    message = told["added_parameters_of_another_model"]
    assert message.startswith("ValueError: 2 of the optimizer's 8 parameters are not in the model")


def test_one_warning_when_no_backward_pass_averages(told: dict[str, Any]) -> None:
    (warning,) = told["never_averaged"]
    assert "gradients from model.no_sync()" in warning


@pytest.mark.parametrize("case", ["unused", "unused_and_another_optimizer"])
def test_unused_parameters_are_named(told: dict[str, Any], case: str) -> None:
    assert told[case].startswith(
        "RuntimeError: parameters 'second.weight', 'second.bias' got no gradient"
    )
    assert "set strategy.find_unused_parameters = True" in told[case]


@pytest.mark.parametrize(
    ("case", "by"),
    [
        ("ddp_below", "it is distributed by DistributedDataParallel already"),
        ("ddp_below_in_a_part", "its part 'first' is distributed by DistributedDataParallel"),
        ("fully_shard_below", "its part 'first' is distributed by fully_shard"),
        ("twice", "it is distributed by fleet.distributed_model already"),
        ("ddp_around", "is wrapped by DistributedDataParallel too"),
        ("ddp_around_a_larger_model", "is wrapped by DistributedDataParallel too"),
        ("ddp_around_localsgd", "is wrapped by DistributedDataParallel too"),
        ("ddp_beside_localsgd", "is wrapped by DistributedDataParallel too"),
        ("fully_shard_around", "is wrapped by fully_shard too"),
    ],
)
def test_other_wrappers_are_refused(told: dict[str, Any], case: str, by: str) -> None:
    assert told[case].startswith("TypeError: ")
    assert by in told[case]


@pytest.mark.parametrize(
    ("case", "what"),
    [
        ("dtypes", "parameter 'first.weight' is float32 [4, 3] on worker 0 and float64 [4, 3] on"),
        ("shapes", "parameter 'second.bias' is float32 [1] on worker 0 and float32 [2] on"),
        ("shapes_localsgd", "parameter 'second.bias' is float32 [1] on worker 0 and float32 [2]"),
        ("names", "parameter 'third.bias' is not set on worker 0 and float32 [1] on worker 1"),
        ("frozen", "float32 [4, 3] on worker 0 and float32 [4, 3], frozen on worker 1"),
        ("buffers", "buffer 'seen' is float32 [1] on worker 0 and float32 [2] on worker 1"),
        ("optimizers", "is torch.optim.sgd.SGD on worker 0 and torch.optim.adam.Adam on worker 1"),
        ("learning_rates", "lr of parameter group 0 is 0.1 on worker 0 and 0.2 on worker 1"),
        ("groups", "the number of parameter groups is 1 on worker 0 and 2 on worker 1"),
        (
            "calls",
            "jobs: the call is fleet.distributed_model on worker 0 and "
            "fleet.distributed_optimizer on worker 1. Start",
        ),
    ],
)
def test_workers_that_differ_hear_both_values(told: dict[str, Any], case: str, what: str) -> None:
    assert told[case].startswith("DisagreementError: ")
    assert what in told[case]


def test_one_worker_and_two_see_the_same_model(told: dict[str, Any], tmp_path: Path) -> None:
    (one,) = run(tmp_path, 1, "alike")
    assert one["alike"] == told["alike"]
    seen = told["alike"]["plain"]
    assert seen == told["alike"]["localsgd"]
    assert [seen[k] for k in ("module", "same", "registered", "independent")] == [True] * 4
    assert seen["parameters"][0] == seen["state"][0] == "first.weight"
    assert seen["modules"] == ["", "first", "second", "norm"]
    assert seen["temperature"] == [100, 100]
    assert seen["own attribute"] == 4
    assert seen["signature"] == "(x)"
    assert seen["set"] == [1, True]
    assert seen["deleted"] == [False, False]
    assert seen["copies"] == [True, True]
    assert "'head' cannot be set" in seen["set head"]
    assert "'scale' cannot be set" in seen["set scale"]
    assert "assign=True" in seen["assign"]
    assert seen["eval"] == [False, False, False]
    assert seen["train"] == [True, True]
    assert not any(seen["frozen"])
    assert seen["dtype"] == "torch.float64"
    assert seen["hook"] == 1
    assert seen["sequence"] == [2, "ReLU", 2, True]


def test_a_wrapped_model_trains_as_the_raw_one() -> None:
    def train(wraps: bool) -> list[torch.Tensor]:
        torch.manual_seed(3)
        layers = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)
        model: nn.Module = nn.Sequential(*layers).double()
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        if wraps:
            fleet = Fleet()
            fleet.init(is_collective=True)
            model = fleet.distributed_model(model)
            optimizer = fleet.distributed_optimizer(optimizer)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(5, 3).double()).square().mean().backward()
            optimizer.step()
        return list(model.state_dict().values())

    for mine, other in zip(train(True), train(False), strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", None])
def test_a_loss_is_not_scaled_twice(dtype: str | None) -> None:
    strategy = DistributedStrategy()
    if dtype is not None:
        strategy.amp = True
        strategy.amp_configs = {"dtype": dtype}
    fleet = Fleet()
    fleet.init(is_collective=True, strategy=strategy)
    model = fleet.distributed_model(nn.Linear(2, 1))
    optimizer = fleet.distributed_optimizer(torch.optim.SGD(model.parameters(), lr=0.5))
    before = model.bias.item()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(model(torch.ones(3, 2)).float().mean()).backward()
    if dtype == "float16":
        with pytest.raises(RuntimeError, match="strategy.amp, which scales the loss itself"):
            scaler.step(optimizer)
        assert model.bias.item() == before
    else:
        scaler.step(optimizer)
        assert model.bias.item() == pytest.approx(before - 0.5)


def test_a_model_on_servers_is_alike() -> None:
    module = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
    model = LocalModel(module)
    model.temperature = 2.0
    assert module.temperature == 2.0
    assert model.module is module
    assert list(dict(model.named_parameters())) == ["0.weight", "0.bias"]
    with pytest.raises(RuntimeError, match="'head' cannot be set"):
        model.head = nn.Linear(1, 1)
    assert not model.eval().training
    assert not module[0].training


@pytest.mark.parametrize("place", ["init", "distributed_optimizer"])
def test_a_strategy_that_is_no_strategy(place: str) -> None:
    fleet = Fleet()
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)

    def give(strategy: Any) -> None:
        if place == "init":
            fleet.init(is_collective=True, strategy=strategy)
        else:
            fleet.init(is_collective=True)
            fleet.distributed_optimizer(optimizer, strategy)

    with pytest.raises(TypeError, match=r"is a dict, .*DistributedStrategy\(\); strategy.amp = T"):
        give({"amp": True})
    with pytest.raises(TypeError, match="not 'amp'"):
        give("amp")
    with pytest.raises(TypeError, match="takes a fleet.DistributedStrategy"):
        give(DistributedStrategy)
