"""Layers on different workers train as one process trains them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from divided_models import (
    Results,
    alone,
    assert_close,
    assert_resumed,
    bytes_to_train,
    job,
    job_fixtures,
    needs_torch,
    values,
)
from torch import nn
from workers import pipeline as worker

from fleetx import fleet
from fleetx.comm.layout import Group
from fleetx.step.compose import choose, compose_step
from fleetx.step.technique import Job
from fleetx.step.train_step import TrainStep
from fleetx.techniques.pipeline import Pipeline
from fleetx.techniques.pipeline_stages import OwnStage, find_layers, first_layers
from fleetx.techniques.pipeline_times import example_inputs, measure_layers

folder, trained = job_fixtures("pipeline.py")


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("name", worker.ALIKE)
def test_workers_train_like_one_process(trained: Results, name: str) -> None:
    for result in trained:
        assert_close(result["alike"][name], alone(worker, worker.ALIKE[name][1]))


@needs_torch
@pytest.mark.slow
def test_the_optimizer_may_come_first(trained: Results) -> None:
    for result in trained:
        assert_close(result["optimizer first"], alone(worker, "adamw"))


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("name", worker.PAIRS)
def test_techniques_act_as_on_a_whole_model(trained: Results, name: str) -> None:
    for result in trained:
        assert_close(result["pairs"][name], result["without"][name])


@needs_torch
@pytest.mark.slow
def test_half_precision_acts_as_on_a_whole_model(trained: Results) -> None:
    for result in trained:
        assert_close(result["amp"][1], result["amp"][0], 0.02)


@needs_torch
@pytest.mark.slow
def test_what_a_stage_holds_and_answers(trained: Results) -> None:
    model = worker.network()
    whole = bytes_to_train(model)
    for rank, result in enumerate(trained):
        found = result["facts"]
        memory = found["memory"]
        assert whole + memory["said"] == memory["held"]
        assert memory["held"] < 0.7 * whole
        inputs, targets = worker.batch(0, rank // 2, 2)  # ranks 0 and 1 are the first copy
        loss = model.loss_fn(model(inputs), targets).item()
        assert found["losses"] == pytest.approx([loss, loss], abs=1e-12)
        first = model.loss_fn(model(worker.batch(0)[0][:4]), worker.batch(0)[1][:4]).item()
        assert found["smaller"] != pytest.approx(first, abs=1e-6)  # an update came between
        assert "call model.train_batch((x, y), optimizer)" in found["refused"]
        assert "a batch has 3 samples" in found["uneven"]
        assert found["row"].startswith(f"stage {rank % 2 + 1} of 2, 1F1B, 4 micro-batches")


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["VPP", "ZBVPP"])
def test_workers_with_several_stages_answer(trained: Results, mode: str) -> None:
    model = worker.network()
    for rank, result in enumerate(trained):
        found = result["several"][mode]
        inputs, targets = worker.batch(0, rank // 2, 2)
        loss = model.loss_fn(model(inputs), targets).item()
        assert found["losses"] == pytest.approx([loss, loss], abs=1e-12)
        assert found["row"].startswith(f"2 stages on worker {rank % 2 + 1} of 2, {mode}, ")


@needs_torch
@pytest.mark.slow
def test_a_checkpoint_is_that_of_the_plain_module(
    trained: Results, folder: Path, fresh_fleet: None
) -> None:
    expected = alone(worker, "adamw")
    for name, settings in (
        ("saved", worker.pipeline()),
        ("saved by several", worker.pipeline(schedule_mode="ZBVPP")),
    ):
        saved = [result[name] for result in trained]
        assert_resumed(saved, worker.PAIR, settings, folder / name, expected)


def test_one_worker_trains_whole_batches(fresh_fleet: None) -> None:
    model, optimizer = worker.make(worker.pipeline(), "sgd")
    worker.train(model, optimizer)
    assert_close(values(model), alone(worker, "sgd"))
    with pytest.raises(TypeError, match="a pair of inputs and targets"):
        model.eval_batch(torch.zeros(2))
    with pytest.raises(TypeError, match="that fleet.distributed_optimizer returned"):
        model.train_batch(worker.batch(0), torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(ValueError, match="set strategy.amp = True"):
        model.train_batch(worker.batch(0), optimizer, None, object())
    plain = fleet.distributed_model(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="need to know the loss"):
        plain.eval_batch((torch.zeros(1, 2), torch.zeros(1, 2)))  # type: ignore[operator]


def piped(workers: int = 2, **settings: Any) -> Job:
    return job(workers, pipeline=True, **settings)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (piped(auto=True), "switches on auto"),
        (piped(pipeline_configs={"vpp_degree": 2}), "a worker has 1 stage(s)"),
        (
            piped(pipeline_configs={"schedule_mode": "ZBVPP", "vpp_degree": 3}),
            "a worker has 2 stage(s)",
        ),
        (
            piped(pipeline_configs={"schedule_mode": "VPP", "accumulate_steps": 5}),
            "set it to a multiple of 2",
        ),
        (piped(pipeline_configs={"cut_by": "time", "stages": ["1"]}), "leave one of them out"),
        (piped(localsgd=True), "which acts between copies of the model"),
        (piped(3, hybrid_configs={"pp_degree": 2}), "its divisors are 1, 3"),
    ],
)
def test_jobs_that_are_refused(given: Job, words: str) -> None:
    with pytest.raises(ValueError, match="strategy|pipeline_configs") as caught:
        choose(given)
    assert words in str(caught.value)


def test_steps_that_are_refused() -> None:
    _, techniques = choose(piped(amp=True, amp_configs={"dtype": "float16"}))
    with pytest.raises(ValueError, match="amp with a loss scale and pipeline"):
        compose_step(techniques)
    technique = Pipeline(piped())
    few = Pipeline(piped(pipeline_configs={"accumulate_steps": 1}))
    with pytest.raises(ValueError, match="needs at least 2 micro-batches"):
        few.change_step(TrainStep())
    with pytest.raises(ValueError, match="LBFGS updates all of them together"):
        technique.check_optimizer(torch.optim.LBFGS(nn.Linear(2, 2).parameters()))


def layers(*sizes: int) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(1, size, bias=False) for size in sizes))


def test_stages_are_even_or_named() -> None:
    assert first_layers(find_layers(layers(4, 1, 1, 2)), 2, []) == [0, 1]
    assert first_layers(find_layers(layers(1, 1, 1, 1)), 2, []) == [0, 2]
    assert first_layers(find_layers(layers(3, 1, 2, 2, 1)), 3, []) == [0, 1, 3]
    assert first_layers(find_layers(layers(1, 1, 1, 1)), 2, ["3"]) == [0, 3]
    for given in (["5"], ["0"], ["1", "2"], []):
        stages = 2 if given else 5
        with pytest.raises(ValueError, match="stages"):
            first_layers(find_layers(layers(1, 1, 1, 1)), stages, given)


def test_stages_are_cut_by_what_layers_take() -> None:
    found = find_layers(layers(8, 1, 1, 1))
    assert first_layers(found, 2, [], [1.0, 1.0, 1.0, 5.0]) == [0, 3]
    assert first_layers(found, 2, [], [1.0, 1.0, 1.0, 1.0]) == [0, 2]


def test_layers_are_measured_without_a_trace() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 2))
    model[0].weight.grad = torch.ones(4, 4)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    torch.manual_seed(5)
    inputs, drawn = torch.randn(8, 4), torch.get_rng_state()
    times = measure_layers(find_layers(model), inputs, lambda run: run)
    assert len(times) == 4
    assert min(times) > 0
    torch.testing.assert_close(model.state_dict(), before, rtol=0.0, atol=0.0)
    assert [p.grad is None for p in model.parameters()] == [False, True, True, True, True, True]
    torch.testing.assert_close(model[0].weight.grad, torch.ones(4, 4), rtol=0.0, atol=0.0)
    assert torch.equal(torch.get_rng_state(), drawn)
    with pytest.raises(ValueError, match=r"a method pipeline_inputs\(\) that returns"):
        example_inputs(model)


def test_models_that_cannot_be_cut() -> None:
    with pytest.raises(ValueError, match="give it a method pipeline_layers"):
        find_layers(nn.Linear(2, 2))
    group = Group((0, 1), 0, None)
    shared = layers(2, 2)
    shared[1].weight = shared[0].weight
    with pytest.raises(ValueError, match="are one parameter, but in different stages"):
        OwnStage(shared, group, [], [0, 1])
    outside = layers(2, 2)
    outside.extra = nn.Parameter(torch.zeros(1))
    with pytest.raises(ValueError, match="parameter 'extra' is in none of the layers"):
        OwnStage(outside, group, [], [0, 1])
    foreign = worker.network()
    foreign.pipeline_layers = lambda: [nn.Linear(2, 2)]  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="no parts of the model"):
        find_layers(foreign)
