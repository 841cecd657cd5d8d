"""A model that 2 x 2 workers divide is trained as one process trains it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from divided_models import (
    OPTIMIZERS,
    STEPS,
    Results,
    Values,
    alone,
    assert_close,
    assert_resumed,
    job_fixtures,
    needs_torch,
    values,
)
from running import run
from safetensors.torch import load_file
from workers import hybrid as worker

from fleetx.serving import load_model

pytestmark = [
    pytest.mark.slow,  # trains dozens of times on four workers
    needs_torch,
]
folder, trained = job_fixtures("hybrid.py")


def apart(parts: list[list[int]], k: int, outer: dict[str, Any], kind: str) -> Values:
    """Return the average of copies that train apart for k steps, by torch alone."""
    copies = [worker.network() for _ in parts]
    optimizers = [OPTIMIZERS[kind](copy.parameters()) for copy in copies]
    snapshot = [p.detach().clone() for p in copies[0].parameters()]
    outermost = torch.optim.SGD(
        snapshot,
        lr=outer.get("outer_lr", 1.0),
        momentum=outer.get("outer_momentum", 0.0),
        nesterov=outer.get("outer_nesterov", False),
    )
    for step in range(STEPS):
        for copy, optimizer, own in zip(copies, optimizers, parts, strict=True):
            optimizer.zero_grad()
            worker.loss_of(copy, worker.batch(step)[own]).backward()
            optimizer.step()
        if (step + 1) % k == 0:
            for i, kept in enumerate(snapshot):
                tensors = [list(copy.parameters())[i] for copy in copies]
                kept.grad = kept - torch.stack([t.detach() for t in tensors]).mean(0)
            outermost.step()
            for copy in copies:
                for p, kept in zip(copy.parameters(), snapshot, strict=True):
                    p.data.copy_(kept)
    return values(copies[0])


@pytest.mark.parametrize("name", worker.ALIKE)
def test_workers_train_like_one_process(trained: Results, name: str) -> None:
    expected = alone(worker, worker.ALIKE[name][1])
    for result in trained:
        assert_close(result["alike"][name], expected)


def test_optimizers_may_be_made_before_the_model_is_divided(trained: Results) -> None:
    for result in trained:
        assert_close(result["optimizer first"], alone(worker, "adamw"))
        assert_close(result["optimizer first, both"], alone(worker, "adamw"))


@pytest.mark.parametrize("name", worker.PAIRS)
def test_techniques_act_as_on_a_whole_model(trained: Results, name: str) -> None:
    for result in trained:
        for found in result["pairs"][name]:
            assert_close(found, result["without"][name])


def test_half_precision_acts_as_on_a_whole_model(trained: Results) -> None:
    for result in trained:
        whole, *divided = result["amp"]
        for found in divided:  # sums in bfloat16 have other portions
            assert_close(found, whole, 0.02)


@pytest.mark.parametrize("name", worker.APART)
def test_local_steps_between_copies(trained: Results, name: str) -> None:
    divided, k, outer, kind = worker.APART[name]
    samples = list(range(worker.BATCH))
    # Copy by copy, the samples that its workers train on together.
    if "sharding" in divided:
        parts = [samples[0::4] + samples[1::4], samples[2::4] + samples[3::4]]
    else:
        parts = [samples[0::2], samples[1::2]]
    expected = apart(parts, k, outer, kind)
    for result in trained:
        assert_close(result["apart"][name], expected)


@pytest.mark.parametrize("name", worker.SAVED)
def test_memory_is_explained_within_five_percent(trained: Results, name: str) -> None:
    for result in trained:
        found = result["saved"][name]["memory"]
        assert found["whole"] + found["said"] == pytest.approx(found["held"], rel=0.05), found[
            "table"
        ]
        assert found["held"] < 0.75 * found["whole"]


@pytest.mark.parametrize("name", worker.SAVED)
def test_a_checkpoint_is_that_of_the_plain_module(
    trained: Results, name: str, folder: Path, fresh_fleet: None
) -> None:
    saved = [result["saved"][name] for result in trained]
    # One worker divides nothing.
    path = folder / name.replace(" ", "-")
    assert_resumed(saved, worker.PAIR, {}, path, alone(worker, "adamw"))


@pytest.mark.parametrize("name", worker.SAVED)
def test_weights_are_those_of_the_plain_module(trained: Results, name: str, folder: Path) -> None:
    path = (folder / name.replace(" ", "-")).with_suffix(".safetensors")
    plain = worker.network()
    plain.load_state_dict(load_file(path))
    assert_close(values(plain), trained[0]["saved"][name]["straight"])


def test_a_divided_model_is_evaluated_exported_and_served(
    trained: Results, folder: Path, tmp_path: Path
) -> None:
    ids = worker.batch(STEPS)
    plain = worker.network()
    plain.load_state_dict(load_file(folder / "tp2-x-shards-3.safetensors"))
    rows = torch.export.Dim("rows")
    exported = torch.export.export(plain.eval(), (ids,), dynamic_shapes={"ids": {0: rows}})
    torch.export.save(exported, tmp_path / "model.pt2")
    (answer,) = load_model(tmp_path).run({"ids": ids.numpy()}).values()
    for result in trained:
        for name in worker.SAVED:
            scores = torch.tensor(result["saved"][name]["scores"], dtype=torch.float64)
            torch.testing.assert_close(scores, torch.from_numpy(answer), rtol=0.0, atol=1e-10)


def test_three_workers_go_on_from_a_checkpoint_of_four(
    trained: Results, folder: Path, tmp_path: Path
) -> None:
    expected = alone(worker, "adamw")
    for result in run("hybrid.py", tmp_path, str(folder / "tp2-x-shards-3"), workers=3):
        for found in result:
            assert_close(found, expected)


def test_workers_of_a_copy_need_the_same_batch(trained: Results) -> None:
    for first, result in zip((0, 0, 2, 2), trained, strict=True):
        text = result["other batches"]
        assert text.startswith(f"workers {first}, {first + 1} divide one copy of the model")
        assert "fleet.data_index()" in text
