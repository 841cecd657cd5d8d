"""Sharded training gives the parameters of one process on the whole batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from running import run
from workers import sharding as worker

from fleetx.techniques.sharding_parameters import can_divide

pytestmark = pytest.mark.slow  # trains dozens of times on two workers

STAGES = ["1", "2", "3"] if can_divide() else ["1", "2"]
Values = dict[str, Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sharding")


@pytest.fixture(scope="module")
def trained(folder: Path) -> list[dict[str, Any]]:
    # Bytes are counted where they pass through sockets.
    return run("sharding.py", folder, ",".join(STAGES), flags=["--backend", "gloo"])


def alone(kind: str, steps: int = worker.STEPS) -> Values:
    """Return the parameters that one process gets on whole batches, by torch alone."""
    model = worker.network()
    optimizer = worker.OPTIMIZERS[kind](model.parameters())
    for step in range(steps):
        optimizer.zero_grad()
        worker.loss_of(model, worker.batch(step)).backward()
        optimizer.step()
    return worker.values(model)


def assert_close(found: Values, expected: Values, within: float = 1e-10) -> None:
    assert list(found) == list(expected)
    for name, values in expected.items():
        torch.testing.assert_close(
            torch.tensor(found[name], dtype=torch.float64),
            torch.tensor(values, dtype=torch.float64),
            rtol=0.0,
            atol=within,
            msg=lambda text, name=name: f"{name}: {text}",
        )


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("kind", worker.KINDS)
def test_workers_train_like_one_process(
    trained: list[dict[str, Any]], stage: str, kind: str
) -> None:
    for result in trained:
        assert_close(result[stage]["optimizers"][kind], alone(kind))


@pytest.mark.skipif(not can_divide(), reason="stage 3 needs PyTorch 2.7 or newer")
def test_large_messages_use_their_memory_again(trained: list[dict[str, Any]]) -> None:
    model = worker.wide()
    expected = worker.train_wide(model, worker.OPTIMIZERS["momentum"](model.parameters()))
    for result in trained:
        assert_close(result["wide"], expected)


@pytest.mark.parametrize("stage", STAGES)
def test_backward_passes_add_up(trained: list[dict[str, Any]], stage: str) -> None:
    for result in trained:
        found = result[stage]["passes"]
        expected = alone("adam")
        assert_close(_parameters(found), _parameters(expected))


def _parameters(values: Values) -> Values:
    return {name: value for name, value in values.items() if not name.endswith("seen")}


PAIRS = [(stage, name) for stage in STAGES for name in worker.PAIRS_OF[int(stage)]]
# They need whole layers or a loss scale.
REFUSED = [pair for pair in PAIRS if pair[0] == "3" and pair[1] in ("amp float16", "lars", "lamb")]


@pytest.mark.parametrize(("stage", "name"), [pair for pair in PAIRS if pair not in REFUSED])
def test_techniques_act_as_without_sharding(
    trained: list[dict[str, Any]], stage: str, name: str
) -> None:
    for result in trained:
        within = 1e-3 if name == "fp16_allreduce" else 1e-10
        if stage == "3" and "amp" in name:  # parameters in float32, updated in other portions
            within = 1e-6
        assert_close(result[stage]["pairs"][name], result["without"][name], within)


@pytest.mark.parametrize(("stage", "name"), REFUSED)
def test_what_needs_whole_layers_is_refused(
    trained: list[dict[str, Any]], stage: str, name: str
) -> None:
    for result in trained:
        text = result[stage]["pairs"][name]
        assert f"the strategy switches on {name.split()[0]}" in text
        assert "sharding_configs['stage'] to 2" in text


@pytest.mark.parametrize("stage", STAGES)
def test_a_worker_holds_its_share(trained: list[dict[str, Any]], stage: str) -> None:
    sizes = [result[stage]["held"] for result in trained]
    whole = sizes[0]["whole"]
    divided = {"1": ["state"], "2": ["state", "gradients"], "3": ["state", "gradients"]}[stage]
    divided += ["parameters"] if stage == "3" else []
    for name in ("state", "gradients", "parameters"):
        total = 2 * whole if name == "state" else whole
        found = [each[name] for each in sizes]
        assert sum(found) == total if name in divided else found == [total, total]
        assert name not in divided or max(found) < 0.6 * total


@pytest.mark.parametrize("stage", STAGES)
def test_it_is_explained_within_five_percent(trained: list[dict[str, Any]], stage: str) -> None:
    for result in trained:
        found = result[stage]["held"]
        rows = [row for row in found["rows"] if row[1] == "sharding"]
        saved = {name: memory for name, _, memory, _, _ in rows}
        sent = {name: sent for name, _, _, sent, _ in rows}
        whole = found["whole"]
        assert 2 * whole + saved["update"] == pytest.approx(found["state"], rel=0.05)
        assert whole + saved["grad_sync"] == pytest.approx(found["gradients"], rel=0.05)
        assert whole + saved["param_sync"] == pytest.approx(found["parameters"], rel=0.05)
        again = found["blocks"] if stage == "3" else 0
        assert sent["param_sync"] == (whole + again) / 2
        assert sent["grad_sync"] == (whole / 2 if stage == "2" else whole)
        assert [row[4] for row in rows if row[0] == "update"][0].endswith("of optimizer state")


@pytest.mark.parametrize("stage", STAGES)
def test_it_sends_what_it_says(trained: list[dict[str, Any]], stage: str) -> None:
    found = [result[stage]["wire"] for result in trained]
    measured = sum(each["received"] for each in found) / len(found)
    assert measured == pytest.approx(found[0]["said"], rel=0.05)


@pytest.mark.parametrize("stage", STAGES)
def test_a_checkpoint_is_that_of_the_plain_module(
    trained: list[dict[str, Any]], stage: str, folder: Path, fresh_fleet: None
) -> None:
    plain = worker.network()
    for result in trained:
        saved = result[stage]["saved"]
        assert saved["names"] == [
            list(plain.state_dict()),
            [name for name, _ in plain.named_parameters()],
        ]
        assert saved["rest"] == {"epoch": 3}
        assert saved["kept"] == result[stage]["held"]["state"]
        trainable = [i for i, p in enumerate(plain.parameters()) if p.requires_grad]
        assert saved["whole"] == {str(i): ["exp_avg", "exp_avg_sq", "step"] for i in trainable}
        assert_close(saved["straight"], alone("adamw", worker.STEPS + 2))
        assert_close(saved["resumed"], saved["straight"])
    # One worker without sharding goes on from the same files.
    model, optimizer = worker.make("adamw", {}, 0)
    worker.fleet.load_checkpoint(str(folder / f"stage{stage}"), model=model, optimizer=optimizer)
    worker.train(model, optimizer, range(worker.STEPS, worker.STEPS + 2))
    assert_close(worker.values(model), alone("adamw", worker.STEPS + 2))
