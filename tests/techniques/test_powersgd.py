"""powersgd: torch's own algorithm as a technique, the same for modules and programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import powersgd as worker
import pytest
import torch
from running import run

from fleetx.fleet.strategy.distributed_strategy import DistributedStrategy
from fleetx.step.compose import choose
from fleetx.step.technique import Job, Sizes
from fleetx.techniques.powersgd import Config, LowRankExchange

Workers = list[dict[str, Any]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Workers:
    return run("powersgd.py", tmp_path_factory.mktemp("powersgd"))


def assert_close(found: dict[str, Any], expected: dict[str, Any], **within: float) -> None:
    np.testing.assert_allclose(found["w"], expected["w"], **within)
    np.testing.assert_allclose(found["b"], expected["b"], **within)


@pytest.mark.parametrize("case", list(worker.CASES))
def test_modules_and_programs_train_alike_with_the_same_bits_on_both_workers(
    trained: Workers, case: str
) -> None:
    first, second = trained
    module, program = first[f"eager {case}"], first[f"static {case}"]
    assert (module["w"], module["b"]) == (
        second[f"eager {case}"]["w"],
        second[f"eager {case}"]["b"],
    )
    assert (program["w"], program["b"]) == (
        second[f"static {case}"]["w"],
        second[f"static {case}"]["b"],
    )
    # The kernels of the two front ends round differently, and under amp cast at other places.
    half = "amp" in worker.CASES[case]
    assert_close(module, program, **({"rtol": 0.05, "atol": 0.01} if half else {"rtol": 1e-4}))
    assert module["w"] != first["first"]
    assert "exchange_gradients" in program["kinds"]
    assert "c_allreduce_sum" not in program["kinds"]


@pytest.mark.parametrize(
    ("case", "plain"),
    [
        ("full rank", "plain"),
        ("full rank, merge", "plain, merge"),
        ("never", "plain"),
        ("too small", "plain"),
    ],
)
def test_what_loses_nothing_is_an_all_reduce(trained: Workers, case: str, plain: str) -> None:
    assert_close(trained[0][f"eager {case}"], trained[0][plain], rtol=1e-4, atol=1e-5)


def test_a_low_rank_loses_something(trained: Workers) -> None:
    difference = np.subtract(trained[0]["eager rank 1"]["w"], trained[0]["plain"]["w"])
    assert np.abs(difference).max() > 1e-3


def test_ddp_with_the_hook_of_torch_trains_alike(trained: Workers) -> None:
    assert_close(trained[0]["eager late"], trained[0]["hook of torch"], rtol=1e-4, atol=1e-5)


def test_a_break_changes_no_bit(trained: Workers) -> None:
    for result in trained:
        assert result["with a break"] == result["eager rank 2"]
        assert result["with an early break"] == result["eager late"]
        assert result["program with a break"] == result["static rank 2"]


def test_state_of_programs_is_in_the_scope(trained: Workers) -> None:
    found = trained[0]["static rank 1"]["residuals"]
    assert list(found) == ["w@RESIDUAL"]
    assert any(found["w@RESIDUAL"])
    assert not trained[0]["static cold"]["residuals"]
    assert found != trained[1]["static rank 1"]["residuals"]  # each worker has its own


def test_explain_tells_the_bytes_that_are_sent(trained: Workers) -> None:
    sent = 4 * (worker.SIZE + worker.OUT + worker.OUT)  # two factors of the matrix, and the bias
    assert trained[0]["eager rank 1"]["bytes"] == sent  # of two workers, a ring sends each once
    assert trained[0]["counted"] == sent
    assert trained[0]["eager merge"]["bytes"] == sent / 2
    assert trained[0]["eager too small"]["bytes"] == trained[0]["all-reduce"]


@pytest.mark.parametrize("case", ["many", "many, full rank"])
def test_tensors_of_all_shapes_and_types_are_averaged(trained: Workers, case: str) -> None:
    for first, second in zip(trained[0][case]["steps"], trained[1][case]["steps"], strict=True):
        for name, found in first.items():
            assert found["mean"] == second[name]["mean"]
            assert np.isfinite(found["mean"]).all()
            assert found["layout"] == found["expected"]


def test_a_full_rank_restores_all_of_them(trained: Workers) -> None:
    for step in trained[0]["many, full rank"]["steps"]:
        for name in worker.SHAPES.keys() - {"half"}:
            within = {"rtol": 1e-3, "atol": 1e-4}
            np.testing.assert_allclose(step[name]["mean"], step[name]["right"], **within)


def test_tensors_that_are_not_worth_it_are_sent_whole(trained: Workers) -> None:
    kept = trained[0]["many"]["kept"]
    compressed = {name for name in worker.SHAPES if f"{name}@RESIDUAL" in kept}
    assert compressed == {"one", "same as one", "double", "half"}
    for step in trained[0]["many"]["steps"]:
        for name in ("scalar", "none", "vector", "two"):
            np.testing.assert_allclose(step[name]["mean"], step[name]["right"], rtol=1e-5)


def test_a_gradient_that_was_zero_is_followed_again(trained: Workers) -> None:
    low = [step["one"]["mean"] for step in trained[0]["many"]["steps"]]
    assert not any(low[0] + low[1])
    assert np.linalg.matrix_rank(np.reshape(low[2], (12, 9)), tol=1e-4) == 2


def test_explain_counts_both_factors() -> None:
    strategy = DistributedStrategy()
    strategy.powersgd = True
    strategy.powersgd_configs = {"matrix_approximation_rank": 4, "start_powerSGD_iter": 10}
    _, (technique,) = choose(Job(strategy=strategy, workers=4))
    (row,) = technique.rows(Sizes(shapes=((100, 20, 5), (100,))))
    assert row.bytes_sent == 2 * 3 / 4 * 4 * (4 * (100 + 100) + 100)
    assert row.memory == 4 * (100 * 100 + 4 * 100)
    assert row.settings == "rank 4 from step 10, error feedback, warm start"
    assert choose(Job(strategy=strategy, workers=1))[1] == []


def test_one_worker_keeps_its_gradients() -> None:
    gradients = worker.gradients(3, 0)
    stage = LowRankExchange(Config(start_powerSGD_iter=0))
    found = stage.mean(gradients, stage.first_state(gradients))
    assert all(found[name] is gradients[name] for name in gradients)


def test_the_state_of_another_rank_is_refused() -> None:
    parameter = torch.nn.Parameter(torch.ones(12, 9))
    saved = LowRankExchange(Config(matrix_approximation_rank=1))
    saved.exchange({"w": parameter})
    stage = LowRankExchange(Config(matrix_approximation_rank=2))
    stage.load_state_dict(saved.state_dict())
    with pytest.raises(ValueError, match=r"w@POWERSGD_Q with the shape \(9, 1\).*\(9, 2\)"):
        stage.exchange({"w": parameter})


@pytest.mark.parametrize("other", ["dgc", "signsgd", "localsgd", "fp16_allreduce"])
def test_techniques_that_do_not_go_together(other: str) -> None:
    strategy = DistributedStrategy()
    strategy.powersgd = True
    setattr(strategy, other, True)
    with pytest.raises(ValueError, match="powersgd") as refusal:
        choose(Job(strategy=strategy, workers=2))
    assert other in str(refusal.value)


def test_settings_are_checked() -> None:
    strategy = DistributedStrategy()
    for name, value in (
        ("matrix_approximation_rank", 0),
        ("start_powerSGD_iter", -1),
        ("min_compression_rate", 0.0),
    ):
        with pytest.raises(ValueError, match=rf"powersgd_configs\['{name}'\]"):
            strategy.powersgd_configs = {name: value}
