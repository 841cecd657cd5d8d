"""amp: close to float32, one verdict on all workers, and a scale that follows it."""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from amp_training import batch, begin, network
from running import run
from torch import nn

from fleetx import fleet
from fleetx.kernels.loss_scale import all_finite
from fleetx.step.technique import Job, Sizes
from fleetx.techniques.amp import Amp, MixedPrecisionRules
from fleetx.techniques.tensors_inside import map_tensors

pytestmark = pytest.mark.usefixtures("fresh_fleet")
FLOAT16 = {"dtype": "float16"}


def train(amp: dict[str, Any] | None, way: str = "plain", steps: int = 20) -> list[float]:
    model, optimizer = begin(network(), amp)
    losses = []
    for step in range(steps):
        x, y = batch(step)
        optimizer.zero_grad()
        parts = 2 if way == "accumulated" else 1
        for i in range(parts):
            loss = nn.functional.cross_entropy(model(x[i::parts]), y[i::parts]) / parts
            if way == "with a penalty":
                loss = loss + 0.01 * sum((p**2).sum() for p in model.parameters())
            if way not in ("minimize", "with a penalty"):
                loss.backward()
        if way == "clipped":
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        if way in ("minimize", "with a penalty"):
            optimizer.minimize(loss)
        else:
            optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("way", ["plain", "accumulated", "clipped", "minimize", "with a penalty"])
def test_it_trains_as_float32_does(way: str) -> None:
    exact = train(None, way)
    np.testing.assert_allclose(train(FLOAT16, way), exact, atol=1e-3)
    np.testing.assert_allclose(train({"use_pure_bf16": True}, way), exact, atol=1e-2)
    np.testing.assert_allclose(train({}, way), exact, atol=1e-2)


@pytest.mark.parametrize("dtype", ["auto", "float16"])
def test_the_scale_follows_good_and_bad_steps(dtype: str) -> None:
    rules = {"init_loss_scaling": 1024.0, "incr_every_n_steps": 3, "decr_ratio": 0.5}
    rules["dtype"] = dtype
    model, optimizer = begin(network(), rules)
    bad, scales = {4, 5, 6}, []
    for step in range(12):
        x, y = batch(step)
        before = model.module[0].weight.detach().clone()
        optimizer.zero_grad()
        (nn.functional.cross_entropy(model(x), y) * (np.inf if step in bad else 1)).backward()
        optimizer.step()
        assert torch.equal(before, model.module[0].weight) == (step in bad)
        scales.append(optimizer.train_step.precision.scale.item())
    # Three good steps double it, two bad ones in a row halve it.
    assert scales == [1024, 1024, 2048, 2048, 2048, 1024, 1024, 1024, 1024, 2048, 2048, 2048]
    state = optimizer.state_dict()
    assert state["fleet"]["precision"] == {"scale": 2048.0, "good_steps": 2, "bad_steps": 0}
    _, fresh = begin(network(), rules)
    fresh.load_state_dict(state)
    assert fresh.train_step.precision.state_dict() == state["fleet"]["precision"]


def test_a_fixed_scale_still_skips_and_bfloat16_does_not_look() -> None:
    fixed = {"init_loss_scaling": 8.0, "use_dynamic_loss_scaling": False}
    named = {"use_pure_bf16": True}, {"dtype": "bfloat16"}
    for amp, skips in ((fixed, True), *((amp, False) for amp in named)):
        model, optimizer = begin(network(), amp)
        before = model.module[0].weight.detach().clone()
        (model(batch(0)[0]).sum() * np.inf).backward()
        optimizer.step()
        assert torch.equal(before, model.module[0].weight) == skips
        assert optimizer.train_step.precision.scale.item() == (8.0 if skips else 1.0)


class Spy(nn.Module):
    """Notes in which types its steps compute."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)
        self.seen: dict[str, torch.dtype] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for name in ("first", "second", "norm"):
            x = getattr(self, name)(x)
            self.seen[name] = x.dtype
        x = torch.softmax(x, -1)
        self.seen["softmax"] = x.dtype
        return x


@pytest.mark.parametrize(
    ("named", "runs", "shown"),
    [
        ({}, torch.bfloat16, "bfloat16 (auto: made for cpu), dynamic scale from 32768"),
        (FLOAT16, torch.float16, "float16, dynamic scale from 32768"),
        ({"dtype": "bfloat16"}, torch.bfloat16, "bfloat16"),
    ],
)
def test_the_device_decides_unless_the_script_names_the_type(
    named: dict[str, Any], runs: torch.dtype, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model, optimizer = begin(Spy(), {**named, "custom_white_list": ["softmax"]})
    optimizer.minimize(model(batch(0)[0]).square().mean())
    assert model.seen["first"] == model.seen["softmax"] == runs
    (row,) = [row for row in fleet.explain().rows if row.technique == "amp"]
    assert row.settings == shown
    name = str(runs).removeprefix("torch.")
    assert f"fleet: amp in {name}; 1 worker(s)" in capsys.readouterr().err


def test_devices_and_their_types() -> None:
    assert MixedPrecisionRules().half("cuda") == "float16"
    assert MixedPrecisionRules().half("cpu") == "bfloat16"
    assert MixedPrecisionRules(dtype="bfloat16").half("cuda") == "bfloat16"
    config = Amp(Job(strategy=fleet.DistributedStrategy()))
    (row,) = config.rows(Sizes(shapes=((1,),), device="cuda"))
    assert row.settings.startswith("float16 (auto: made for cuda)")


@pytest.mark.parametrize(
    ("lists", "half"),
    [
        ({"custom_black_list": ["softmax"]}, {"first", "second", "norm"}),
        ({"custom_black_list": ["mul"]}, set()),
        ({"custom_black_list": ["mul"], "custom_white_list": ["softmax"]}, {"softmax"}),
        ({"custom_black_list": ["batch_norm", "softmax"]}, {"first", "second"}),
        (
            {"custom_white_list": ["batch_norm"], "custom_black_varnames": ["second.weight"]},
            {"first", "norm", "softmax"},
        ),
    ],
)
def test_custom_lists(lists: dict[str, Any], half: set[str]) -> None:
    model, optimizer = begin(Spy(), {**lists, **FLOAT16})
    optimizer.minimize(model(batch(0)[0]).square().mean())
    found = {name for name, dtype in model.seen.items() if dtype == torch.float16}
    assert found == half
    assert not torch.equal(model.norm.running_mean, torch.zeros(8))


@pytest.mark.parametrize(
    ("amp", "other", "words"),
    [
        ({"use_pure_fp16": True}, {}, "set use_pure_fp16 to False"),
        ({"use_optimizer_fp16": True}, {}, "set use_optimizer_fp16 to False"),
        ({"use_pure_bf16": True, **FLOAT16}, {}, "has one type of half precision: leave one"),
        ({"dtype": "float8"}, {}, "one of auto, float16, bfloat16, not 'float8'"),
        ({"custom_white_list": ["mul"], "custom_black_list": ["mul"]}, {}, "overlap"),
        (
            {"custom_white_list": ["no_such_op"]},
            {},
            "does not know a torch function for the op 'no_such_op'",
        ),
        ({"custom_black_varnames": ["no_such"]}, {}, "names no_such, but the model has no such"),
    ],
)
def test_refusals(amp: dict[str, Any], other: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        begin(network(), amp, **other)


@pytest.mark.parametrize("amp", [FLOAT16, {}])
def test_a_model_in_float16_is_refused(amp: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"parameter '0.weight' is float16, .* leave out model.ha"):
        begin(nn.Sequential(nn.Linear(2, 1)).half(), amp)


@dataclasses.dataclass
class Held:
    """What a model may return."""

    logits: torch.Tensor
    count: int


def test_tensors_are_found_in_whatever_holds_them() -> None:
    Point = namedtuple("Point", "x y")
    one, whole = torch.ones(1), torch.ones(1, dtype=torch.int64)
    value = {"a": [one, whole], "b": (Point(one, 3), Held(one, 2)), "c": None}
    found = map_tensors(value, lambda t: t + 1)
    assert found["a"][0] == 2
    assert found["a"][1] is whole
    assert found["b"][0] == Point(torch.tensor([2.0]), 3)
    assert found["b"][1].logits == 2
    assert value["b"][1].logits == 1
    assert found["c"] is None


def test_large_finite_gradients_are_finite() -> None:
    large = torch.full((10,), 3e38)
    assert all_finite([large, torch.zeros(2)])
    assert not all_finite([large, torch.tensor([torch.nan])])
    assert not all_finite([torch.tensor([torch.inf]).to_sparse()])
    assert all_finite([])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run("amp.py", tmp_path_factory.mktemp("amp"))


def column(rows: list[list[float]], index: int) -> list[float]:
    return [row[index] for row in rows]


@pytest.mark.parametrize(
    ("case", "tolerance"), [("amp", 2e-2), ("amp in float16", 2e-3), ("amp in bfloat16", 2e-2)]
)
@pytest.mark.parametrize("way", ["eager", "program"])
def test_two_workers_train_as_in_float32(
    trained: list[dict[str, Any]], case: str, tolerance: float, way: str
) -> None:
    for result in trained:
        exact, half = (column(result[name][way], 0) for name in ("float32", case))
        np.testing.assert_allclose(half, exact, atol=tolerance)


OVERFLOWS = ["overflow", "overflow in float16", "overflow with localsgd", "overflow with dgc"]


@pytest.mark.parametrize(
    "case", ["amp", "amp in float16", *OVERFLOWS, "overflow with gradient_merge"]
)
def test_programs_train_as_modules_do(trained: list[dict[str, Any]], case: str) -> None:
    assert column(trained[0][case]["eager"], 1) == column(trained[1][case]["eager"], 1)
    for result in trained:
        np.testing.assert_allclose(result[case]["program"], result[case]["eager"], atol=5e-3)


@pytest.mark.parametrize("case", OVERFLOWS)
@pytest.mark.parametrize("way", ["eager", "program"])
def test_an_overflow_on_one_worker_skips_the_step_on_all(
    trained: list[dict[str, Any]], case: str, way: str
) -> None:
    first, second = (result[case][way] for result in trained)
    # Three good steps, two bad, two good, one NaN, one good.
    scales = [64, 64, 128, 128, 64, 64, 64, 64, 64]
    assert column(first, 1) == column(second, 1) == scales
    assert np.isnan(second[3][0])
    assert not np.isnan(first[3][0])
    if "with" not in case:
        assert column(first, 2) == column(second, 2)
    if "localsgd" not in case:
        totals = column(first, 2)
        still = [i for i in range(1, len(totals)) if totals[i] == totals[i - 1]]
        assert still == [3, 4, 7]
