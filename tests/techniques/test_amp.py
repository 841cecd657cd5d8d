"""amp: close to float32, in true units, one verdict on all workers, and a scale that follows it."""

from __future__ import annotations

import dataclasses
import warnings
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from running import run
from torch import nn

from fleetx import fleet
from fleetx.kernels.loss_scale import all_finite
from fleetx.step.technique import Job, Sizes
from fleetx.techniques.amp import Amp, MixedPrecisionRules
from fleetx.techniques.tensors_inside import map_tensors

pytestmark = pytest.mark.usefixtures("fresh_fleet")
FLOAT16 = {"dtype": "float16"}


def begin(model: nn.Module, amp: dict[str, Any] | None, **other: Any) -> tuple[Any, Any]:
    strategy = fleet.DistributedStrategy()
    if amp is not None:
        strategy.amp = True
        strategy.amp_configs = amp
    for name, value in other.items():
        setattr(strategy, name, value)
    fleet.init(is_collective=True, strategy=strategy)
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return fleet.distributed_model(model), fleet.distributed_optimizer(inner)


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    data = torch.Generator().manual_seed(step)
    x = torch.randn(16, 8, generator=data)
    return x, (x[:, 0] > 0).long()


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


def test_gradients_are_in_true_units_and_small_ones_survive() -> None:
    model, optimizer = begin(nn.Linear(4, 1, bias=False), FLOAT16)
    out = model(torch.ones(2, 4))
    assert out.dtype == torch.float32
    (out.sum() * 1e-8).backward()  # nothing in float16 without a scale
    torch.testing.assert_close(model.weight.grad, torch.full((1, 4), 2e-8), rtol=1e-3, atol=0)
    assert optimizer.train_step.precision.scale.item() == 2**15


def test_a_backward_pass_around_the_model_is_not_divided() -> None:
    model, _ = begin(network(), FLOAT16)
    (model.module[0].weight ** 2).sum().backward()
    torch.testing.assert_close(model.module[0].weight.grad, 2 * model.module[0].weight.detach())


def test_gradients_of_inputs_and_of_models_in_a_row_are_true() -> None:
    def grads(amp: dict[str, Any] | None) -> list[Any]:
        first, _ = begin(nn.Linear(4, 4), amp)
        second, _ = begin(nn.Linear(4, 4), amp)
        for model in (first, second):
            for p in model.parameters():
                p.data.copy_(torch.linspace(-1, 1, p.numel()).view(p.shape))
        x = torch.linspace(0, 1, 8).view(2, 4).requires_grad_()
        second(second(first(x))).square().sum().backward()
        return [x.grad, *(p.grad for m in (first, second) for p in m.parameters())]

    scale = {"init_loss_scaling": 64.0, **FLOAT16}
    for half, single in zip(grads(scale), grads(None), strict=True):
        torch.testing.assert_close(half, single, rtol=5e-3, atol=5e-3)


def test_a_parameter_that_thaws_later() -> None:
    model = network()
    model[0].requires_grad_(False)
    model, _ = begin(model, FLOAT16)
    model.module[0].requires_grad_(True)
    x, y = batch(0)
    nn.functional.cross_entropy(model(x), y).backward()
    assert 0 < model.module[0].weight.grad.abs().max() < 1


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
        ({"custom_white_list": ["no_such_op"]}, {}, "no function of torch for the op 'no_such_op'"),
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


HALF = {"dtype": "float16", "init_loss_scaling": 1024.0}  # no gradient below overflows


class Leaky(nn.Module):
    """Returns a tensor, a number and a nested tensor, and keeps what is inside."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)
        self.inside: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        self.inside = torch.tanh(self.first(x))
        return {"out": self.second(self.inside), "count": len(x), "more": (self.inside.mean(),)}


def penalty(model: nn.Module) -> torch.Tensor:
    return 0.05 * torch.stack([(p**2).sum() for p in model.parameters()]).sum()


def first_weight(model: Any) -> torch.Tensor:
    found: torch.Tensor = model.module.first.weight if hasattr(model, "module") else None
    return found if found is not None else model.first.weight


def gradient_penalty(model: Any, x: torch.Tensor) -> torch.Tensor:
    x = x.clone().requires_grad_()
    out = model(x)["out"]
    (slope,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
    return slope.square().mean()


LOSSES: dict[str, Any] = {
    "outputs and a penalty": lambda m, o, x: m(x)["out"].square().mean() + penalty(m),
    "a penalty alone": lambda m, o, x: penalty(m),
    "outputs alone": lambda m, o, x: m(x)["out"].square().mean(),
    "outputs used twice": lambda m, o, x: (
        (out := m(x)["out"]).square().mean() + out.abs().mean() + penalty(m)
    ),
    "several outputs": lambda m, o, x: (
        (out := m(x))["out"].mean() * out["count"] + out["more"][0] + penalty(m)
    ),
    "two passes": lambda m, o, x: m(x)["out"].mean() * m(-x)["out"].square().mean() + penalty(m),
    "through two models": lambda m, o, x: (
        m(o(x)["out"].repeat(1, 2))["out"].square().mean() + penalty(m) + penalty(o)
    ),
    "a penalty of outputs and weights": lambda m, o, x: (
        m(x)["out"].mean() * first_weight(m).square().sum()
    ),
}


def trained_by(
    loss_of: Any, way: str, amp: dict[str, Any] | None, **other: Any
) -> list[torch.Tensor]:
    """Return the parameters of two models after three steps, and the gradient of a leaf."""
    made = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        made.append(begin(Leaky(), amp, **other))
    (model, optimizer), (second, others) = made
    leaf = torch.full((8,), 0.5, requires_grad=True)
    for step in range(3):
        x, _ = batch(step)
        optimizer.zero_grad()
        others.zero_grad()
        loss = loss_of(model, second, x + leaf) + leaf.square().sum()
        if way == "minimize":
            optimizer.minimize(loss)
        else:
            (optimizer.scale(loss) if way == "scale" else loss).backward()
            optimizer.step()
        others.step()
    assert leaf.grad is not None
    values = [p.detach().clone() for m in (model, second) for p in m.parameters()]
    return [*values, leaf.grad]


@pytest.mark.parametrize("way", ["backward", "scale", "minimize"])
@pytest.mark.parametrize("loss", list(LOSSES))
def test_penalties_and_whatever_else_a_loss_is_made_of(loss: str, way: str) -> None:
    exact = trained_by(LOSSES[loss], way, None)
    for actual, expected in zip(trained_by(LOSSES[loss], way, HALF), exact, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-2, atol=2e-3)


def test_gradients_of_gradients_are_right_and_unscaled_with_a_warning() -> None:
    def loss(model: Any, _: Any, x: torch.Tensor) -> torch.Tensor:
        task: torch.Tensor = model(x)["out"].square().mean()
        return task + gradient_penalty(model, x) + penalty(model)

    exact = trained_by(loss, "backward", None)
    with pytest.warns(UserWarning, match=r"optimizer\.scale\(loss\)"):
        plain = trained_by(loss, "backward", HALF)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaled = [trained_by(loss, way, HALF) for way in ("scale", "minimize")]
    for found in (plain, *scaled):
        for actual, expected in zip(found, exact, strict=True):
            torch.testing.assert_close(actual, expected, rtol=2e-2, atol=5e-3)


@pytest.mark.parametrize("way", ["scale", "minimize"])
def test_a_scaled_loss_may_use_what_the_model_does_not_return(way: str) -> None:
    def loss(model: Any, _: Any, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = model(x)["out"].square().mean()
        return out + model.inside.abs().mean()

    exact = trained_by(loss, way, None)
    for actual, expected in zip(trained_by(loss, way, HALF), exact, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-2, atol=2e-3)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("way", ["backward", "scale"])
def test_checkpoints_inside_the_model(way: str, reentrant: bool) -> None:
    class Saving(Leaky):
        def forward(self, x: torch.Tensor) -> dict[str, Any]:
            hidden = torch.utils.checkpoint.checkpoint(
                lambda t: torch.tanh(self.first(t)), x, use_reentrant=reentrant
            )
            return {"out": self.second(hidden)}

    def gradients(amp: dict[str, Any] | None) -> list[torch.Tensor]:
        torch.manual_seed(1)
        model, optimizer = begin(Saving(), amp)
        x, _ = batch(0)
        loss = model(x.requires_grad_())["out"].square().mean() + penalty(model)
        (optimizer.scale(loss) if way == "scale" else loss).backward()
        return [p.grad for p in model.parameters() if p.grad is not None]

    for actual, expected in zip(gradients(HALF), gradients(None), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-2, atol=2e-3)


def test_a_pass_that_raised_leaves_nothing_behind() -> None:
    model, _ = begin(network(), {})
    x, y = batch(0)

    def stop(_: torch.Tensor) -> None:
        raise ZeroDivisionError

    handle = model.module[0].weight.register_hook(stop)
    with pytest.raises(ZeroDivisionError):
        nn.functional.cross_entropy(model(x), y).backward()
    handle.remove()
    model.zero_grad()
    model(x)  # the next forward pass begins anew
    penalty(model).backward()
    weight = model.module[0].weight
    torch.testing.assert_close(weight.grad, 0.1 * weight.detach())


def test_a_model_that_is_given_to_fleet_again_is_scaled_once() -> None:
    torch.manual_seed(1)
    module = Leaky()
    begin(module, {})
    model, optimizer = begin(module, {})
    x, _ = batch(0)
    optimizer.scale(model(x)["out"].square().mean()).backward()
    assert module.first.weight.grad is not None
    actual = module.first.weight.grad.clone()
    module.zero_grad()
    module(x)["out"].square().mean().backward()
    torch.testing.assert_close(actual, module.first.weight.grad, rtol=1e-2, atol=1e-3)
