"""Compressed exchanges of gradients: signsgd, and a technique from outside the package."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from running import run
from workers import compressed as worker

from fleetx import fleet
from fleetx.fleet.strategy.distributed_strategy import DistributedStrategy, settings
from fleetx.fleet.strategy.prototxt import merge_text, to_text
from fleetx.fleet.strategy.technique_switches import TechniqueSwitches
from fleetx.step import registry
from fleetx.step.compression import ErrorFeedback
from fleetx.step.technique import NoSettings, Order, Technique
from fleetx.techniques.signsgd import Sign


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run("compressed.py", tmp_path_factory.mktemp("compressed"))


@pytest.mark.parametrize("case", list(worker.CASES))
def test_modules_and_programs_train_alike_with_the_same_bits_on_both_workers(
    trained: list[dict[str, Any]], case: str
) -> None:
    first, second = trained
    module, program = first[f"eager {case}"], first[f"static {case}"]
    assert module["w"] == second[f"eager {case}"]["w"]
    assert program["w"] == second[f"static {case}"]["w"]
    # The kernels of the two front ends round differently, and under amp cast at other places.
    within = {"rtol": 0.05, "atol": 0.01} if "amp" in worker.CASES[case] else {"rtol": 1e-4}
    np.testing.assert_allclose(module["w"], program["w"], **within)
    np.testing.assert_allclose(module["b"], program["b"], **within)
    assert module["w"] != worker.first_weights().ravel().tolist()
    assert "exchange_gradients" in program["kinds"]
    assert "c_allreduce_sum" not in program["kinds"]


@pytest.mark.parametrize("case", list(worker.STAGES))
def test_own_stages_train_alike_in_modules_and_programs(
    trained: list[dict[str, Any]], case: str
) -> None:
    module, program = trained[0][f"eager {case}"], trained[0][f"static {case}"]
    assert module["w"] == trained[1][f"eager {case}"]["w"] != trained[0]["eager plain"]["w"]
    assert program["w"] == trained[1][f"static {case}"]["w"]
    within = {"rtol": 0.05, "atol": 0.01} if "amp" in case else {"rtol": 1e-4}
    np.testing.assert_allclose(module["w"], program["w"], **within)
    np.testing.assert_allclose(module["b"], program["b"], **within)
    assert ("sync_parameters" in program["kinds"]) == ("slow" in case)
    assert ("clip_gradients" in program["kinds"]) == ("adaptive" in case)


def test_a_break_keeps_the_state_of_own_stages(trained: list[dict[str, Any]]) -> None:
    for result in trained:
        assert result["slow with a break, eager"] == result["eager slow"]
        assert result["slow with a break, program"] == result["static slow"]


@pytest.mark.parametrize("feedback", [True, False])
def test_signsgd_follows_its_formula(trained: list[dict[str, Any]], feedback: bool) -> None:
    weights = torch.from_numpy(worker.first_weights())
    bias = torch.zeros(worker.OUT)
    kept = [[torch.zeros_like(weights), torch.zeros_like(bias)] for _ in range(2)]
    for both in zip(worker.batches(0), worker.batches(1), strict=True):
        totals = [torch.zeros_like(weights), torch.zeros_like(bias)]
        for rank, (x, y) in enumerate(both):
            w, b = weights.clone().requires_grad_(), bias.clone().requires_grad_()
            loss = ((torch.from_numpy(x) @ w + b - torch.from_numpy(y)) ** 2).mean()
            for i, gradient in enumerate(torch.autograd.grad(loss, [w, b])):
                wanted = gradient + kept[rank][i]
                sent = wanted.abs().mean() * torch.where(wanted >= 0, 1.0, -1.0)
                kept[rank][i] = wanted - sent if feedback else kept[rank][i]
                totals[i] += sent / 2
        weights, bias = weights - 0.05 * totals[0], bias - 0.05 * totals[1]
    found = trained[0]["eager signsgd" if feedback else "eager no feedback"]
    np.testing.assert_allclose(found["w"], weights.ravel(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["b"], bias, rtol=1e-4, atol=1e-5)


def test_state_of_programs_is_in_the_scope(trained: list[dict[str, Any]]) -> None:
    found = trained[0]["static signsgd"]["residuals"]
    assert list(found) == ["b@RESIDUAL", "w@RESIDUAL"]
    assert any(found["w@RESIDUAL"])
    assert not trained[0]["static no feedback"]["residuals"]
    assert found != trained[1]["static signsgd"]["residuals"]  # each worker has its own


def test_a_break_changes_nothing(trained: list[dict[str, Any]]) -> None:
    for result in trained:
        assert result["with a break"] == result["eager signsgd"]


def test_explain_tells_the_bytes(trained: list[dict[str, Any]]) -> None:
    entries = worker.SIZE * worker.OUT
    bits = (entries + 7) // 8 + (worker.OUT + 7) // 8
    assert trained[0]["eager signsgd"]["bytes"] == bits + 2 * 4
    assert trained[0]["eager merge"]["bytes"] == (bits + 2 * 4) / 2
    assert trained[0]["eager own"]["bytes"] == entries + worker.OUT + 2 * 4


@pytest.mark.parametrize("shape", [(1,), (8,), (3, 5), (0,), ()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_signs_are_restored(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    tensor = torch.randn(shape).to(dtype)
    message = Sign().compress("x", tensor, {})
    assert message.dtype is torch.uint8
    assert message.numel() == Sign().message_bytes(tensor.numel())
    restored = Sign().restore(message, tensor)
    assert restored.shape == tensor.shape
    assert restored.dtype is dtype
    assert torch.equal(restored >= 0, tensor >= 0)
    if tensor.numel():
        expected = tensor.abs().mean().float().to(dtype)
        assert torch.equal(restored.abs(), expected.expand(shape))


def test_error_feedback_loses_nothing_in_the_long_run() -> None:
    compressor = ErrorFeedback(Sign())
    state = {"x@RESIDUAL": torch.zeros(5, dtype=torch.float64)}
    gradient = torch.tensor([1.0, -2.0, 0.5, 3.0, 0.0], dtype=torch.float64)
    total = torch.zeros_like(gradient)
    for _ in range(500):
        total += compressor.restore(compressor.compress("x", gradient, state), gradient)
    torch.testing.assert_close(total + state["x@RESIDUAL"], 500 * gradient)


@contextlib.contextmanager
def registered() -> Iterator[None]:
    """Know the example's technique for a while."""
    fleet.register(worker.EightBits)
    try:
        yield
    finally:
        del registry._known["eight_bits"]
        for name in ("eight_bits", "eight_bits_configs"):
            delattr(TechniqueSwitches, name)


@pytest.fixture
def own() -> Iterator[None]:
    with registered():
        yield


@pytest.mark.usefixtures("own")
def test_a_registered_technique_has_switch_settings_and_protobuf() -> None:
    strategy = DistributedStrategy()
    assert not strategy.eight_bits
    strategy.eight_bits = True
    strategy.eight_bits_configs = {"levels": 7}
    with pytest.raises(ValueError, match=r"eight_bits_configs\['levels'\] must be at least 1"):
        strategy.eight_bits_configs = {"levels": 0}
    again = DistributedStrategy()
    merge_text(again, to_text(strategy), "the text")
    assert again == strategy
    assert again.eight_bits_configs == {"levels": 7}
    assert {"eight_bits", "eight_bits_configs"} <= set(settings())


def test_strategies_made_before_know_it_too() -> None:
    early = DistributedStrategy()
    with registered():
        assert not early.eight_bits
        assert early == DistributedStrategy()
        early.eight_bits_configs = {"levels": 3}
        assert early.eight_bits_configs["levels"] == 3


def test_what_cannot_be_registered_is_refused() -> None:
    class Twin(Technique[NoSettings]):
        name = "amp"
        order = Order.PRECISION

    class Taken(Technique[NoSettings]):
        name = "nccl_comm_num"
        order = Order.PRECISION

    class Whenever(Technique[NoSettings]):
        name = "whenever"

    with pytest.raises(ValueError, match="already a technique 'amp'"):
        fleet.register(Twin)
    with pytest.raises(ValueError, match="already has a setting 'nccl_comm_num'"):
        fleet.register(Taken)
    assert "nccl_comm_num" not in registry._known
    with pytest.raises(TypeError, match="order is not set"):
        fleet.register(Whenever)
    with pytest.raises(TypeError, match="a subclass of Technique, not 3"):
        fleet.register(3)  # type: ignore[arg-type]
