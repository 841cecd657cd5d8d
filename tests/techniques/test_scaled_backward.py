"""Gradients inside a model are scaled, and in true units wherever they leave it."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from amp_training import batch, begin, network
from torch import nn

pytestmark = pytest.mark.usefixtures("fresh_fleet")
FLOAT16 = {"dtype": "float16"}


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
