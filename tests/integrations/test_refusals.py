"""Unsupported settings of adapters are rejected before training, by name."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fleetx.integrations as integrations
from fleetx import fleet
from fleetx.fleet import DistributedStrategy
from fleetx.integrations.attached_job import AttachedJob

pytestmark = [pytest.mark.usefixtures("fresh_fleet"), pytest.mark.slow]


@pytest.fixture
def accelerator() -> Iterator[Any]:
    """Return what makes accelerators, whose settings are shared by the process until the end."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState, PartialState

    def make(**options: Any) -> Accelerator:
        return Accelerator(cpu=True, **options)

    yield make
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()


def merging() -> DistributedStrategy:
    strategy = DistributedStrategy()
    strategy.gradient_merge = True
    strategy.gradient_merge_configs = {"k_steps": 2}
    return strategy


def test_names_are_listed_and_others_are_refused() -> None:
    assert "FleetPlugin" in dir(integrations)
    with pytest.raises(AttributeError, match="has no attribute 'FleetPlugIn'; it has Fleet"):
        integrations.FleetPlugIn  # noqa: B018


def test_a_library_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError("No module named 'lightning'", name="lightning")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'fleetx\[lightning\]'"):
        integrations.FleetStrategy  # noqa: B018


def test_one_worker_trains_as_without_fleet(accelerator: Any) -> None:
    from fleetx.integrations import FleetPlugin

    made = FleetPlugin().attach(accelerator())
    model, plain = nn.Linear(3, 1), nn.Linear(3, 1)
    plain.load_state_dict(model.state_dict())
    model, optimizer = made.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    x = torch.ones(2, 3)
    made.backward(model(x).sum())
    optimizer.step()
    plain(x).sum().backward()
    expected = plain.weight - 0.1 * plain.weight.grad
    assert torch.equal(made.unwrap_model(model).weight, expected)
    assert type(made.unwrap_model(model)) is nn.Linear


def test_a_plugin_has_one_accelerator(accelerator: Any) -> None:
    from fleetx.integrations import FleetPlugin

    plugin = FleetPlugin()
    made = plugin.attach(accelerator())
    with pytest.raises(RuntimeError, match="is for one Accelerator"):
        plugin.attach(made)


def test_settings_of_ddp_are_refused(accelerator: Any) -> None:
    from accelerate import DistributedDataParallelKwargs

    from fleetx.integrations import FleetPlugin

    handler = DistributedDataParallelKwargs(find_unused_parameters=True)
    with pytest.raises(ValueError, match="set strategy.find_unused_parameters"):
        FleetPlugin().attach(accelerator(kwargs_handlers=[handler]))


def test_a_compiler_of_the_accelerator_is_refused(accelerator: Any) -> None:
    from fleetx.integrations import FleetPlugin

    with pytest.raises(ValueError, match="dynamo_backend='EAGER'"):
        FleetPlugin().attach(accelerator(dynamo_backend="eager"))


def test_a_clip_that_would_see_other_gradients_is_refused(accelerator: Any) -> None:
    from fleetx.integrations import FleetPlugin

    made = FleetPlugin(merging()).attach(accelerator())
    model = nn.Linear(2, 1)
    with pytest.raises(ValueError, match=r"strategy.gradient_merge it sees the gradient of the la"):
        made.clip_grad_norm_(model.parameters(), 1.0)
    with pytest.raises(ValueError, match=r"accelerator.clip_grad_value_ clips gradients before"):
        made.clip_grad_value_(model.parameters(), 1.0)


def test_a_trainer_refuses_what_it_cannot_follow(
    accelerator: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ACCELERATE_MIXED_PRECISION", "ACCELERATE_USE_IPEX"):
        monkeypatch.setenv(name, "no")  # older versions set it
    from transformers import TrainingArguments

    from fleetx.integrations import FleetTrainer

    def make(strategy: Any, **settings: Any) -> None:
        options = {"output_dir": str(tmp_path), "use_cpu": True, "report_to": []}
        arguments = TrainingArguments(**options, **settings)
        FleetTrainer(nn.Linear(1, 1), arguments, fleet_strategy=strategy)

    with pytest.raises(ValueError, match="max_grad_norm=1.0 clips gradients before"):
        make(merging())
    with pytest.raises(ValueError, match="ddp_find_unused_parameters=True is a setting of DDP"):
        make(None, ddp_find_unused_parameters=True)


def test_lightning_refuses_settings_of_ddp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # importing Lightning sets it
    from fleetx.integrations import FleetFabricStrategy, FleetStrategy

    for kind in (FleetStrategy, FleetFabricStrategy):
        with pytest.raises(
            ValueError, match=f"{kind.__name__} does not take DDP.s find_unused_parameters"
        ):
            kind(find_unused_parameters=True)


def test_a_job_of_another_size_than_the_launchers_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "1")
    with pytest.raises(RuntimeError, match="worker 0 of 4 on 1 machine"):
        AttachedJob().start(0, 4)
    assert not fleet.fleet.gathers_state


def test_states_that_a_checkpoint_lacks_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = AttachedJob(merging())
    job.start(0, 1)
    model = job.model(nn.Linear(2, 1))
    job.optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    job.save(tmp_path / "kept")
    job.load(tmp_path / "kept")
    assert not caplog.messages
    job.load(tmp_path / "missing")
    assert "missing does not exist: the checkpoint was written without" in caplog.messages[0]


def test_a_worker_of_parameter_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    from fleetx.integrations.attached_job import AttachedJob

    place = {
        "PADDLE_PSERVERS_IP_PORT_LIST": "127.0.0.1:9",
        "PADDLE_TRAINER_ENDPOINTS": "127.0.0.1:10,127.0.0.1:11",
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_TRAINER_ID": "1",
        "TRAINING_ROLE": "TRAINER",
    }
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    job = AttachedJob(fleet.DistributedStrategy())
    with pytest.raises(ValueError, match="max_grad_norm=1.0 clips .* this excludes those of rows"):
        job.check_clip("max_grad_norm=1.0")
    with pytest.raises(RuntimeError, match="worker 0 of 1, but .* it is worker 1 of 2: configure"):
        job.start(0, 1)
