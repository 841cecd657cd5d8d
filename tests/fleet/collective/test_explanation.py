"""What `fleet.explain()` says of bytes whose number is known, and of activations."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from fleetx import fleet
from fleetx.fleet.collective.explain import Explanation, explain
from fleetx.fleet.collective.held import Held
from fleetx.step.compose import choose
from fleetx.step.stages import Stage
from fleetx.step.technique import Job, Row, Sizes
from fleetx.step.train_step import TrainStep

LAYERS = Row(stage=Stage.MEMORY, technique="tensor_parallel", activations=None, axes=("mp",))
GRADIENTS = Row(stage=Stage.GRAD_SYNC, technique="all-reduce", bytes_sent=2e6)


def test_the_summary_does_not_pass_over_activations() -> None:
    assert "each sends activations per step" in Explanation((LAYERS,), 2).short()
    both = Explanation((LAYERS, GRADIENTS), 4)
    assert "each sends 2.0 MB and activations per step" in both.short()
    assert both.bytes_sent == 2e6
    assert "each sends 2.0 MB per step" in Explanation((GRADIENTS,), 2).short()
    known = Row(stage=Stage.MEMORY, technique="tensor_parallel", activations=5e5)
    assert "each sends 2.5 MB per step" in Explanation((known, GRADIENTS), 4).short()


def test_the_table_shows_which_technique_sends_activations() -> None:
    lines = str(Explanation((LAYERS, GRADIENTS), 4)).splitlines()
    (layers,) = (line for line in lines if "tensor_parallel" in line)
    (gradients,) = (line for line in lines if "all-reduce" in line)
    assert "activations" in layers
    assert "2.0 MB" in gradients
    assert "activations" not in gradients


def test_no_word_and_no_number_of_what_is_kept_is_cut_off() -> None:
    held = Held(parameters=1e9, gradients=2e9, state=3e9, techniques=4e9, activations=5e9)
    rows = [
        ["parameters", "1.0 GB"],
        ["gradients", "2.0 GB"],
        ["optimizer state", "3.0 GB"],
        ["techniques", "4.0 GB"],
        ["activations", "5.0 GB"],
        ["total", "15.0 GB"],
    ]
    lines = str(Explanation((), 1, held=held)).splitlines()
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines]
    assert [cell for cell in cells if len(cell) == 2][-len(rows) :] == rows


def test_links_are_those_of_the_machines() -> None:
    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = {"mp_degree": 2, "pp_degree": 2, "dp_degree": 2}
    strategy.fp16_allreduce = True
    job, techniques = choose(Job(strategy=strategy, workers=8, rank=5, machines=4))
    optimizer = torch.optim.SGD([torch.ones(1)], lr=0.1)
    for technique in techniques:
        technique.change_update(TrainStep(), optimizer)
    found = explain(job, techniques, Sizes(shapes=((100, 10),)), "SGD")
    sent = {each.axes: (each.ranks, each.machines, each.bytes_sent) for each in found.messages}
    assert sent == {
        ("mp",): ((4, 5), 1, None),
        ("pp",): ((5, 7), 2, None),
        ("dp",): ((1, 5), 2, 2000.0),
    }
    text = str(found)
    assert "one machine" in text
    assert "2 machines" in text


def trained(steps: int, *, asks: bool) -> tuple[nn.Module, Explanation | None]:
    """Return a model after some steps, and what was explained before them."""
    fleet.init(is_collective=True)
    model = fleet.distributed_model(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)))
    optimizer = fleet.distributed_optimizer(torch.optim.Adam(model.parameters()))
    before = fleet.explain() if asks else None
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(16, 4)).square().mean().backward()
        optimizer.step()
    return model, before


def hooks(model: nn.Module) -> int:
    return len(model.module._forward_pre_hooks) + len(model.module._forward_hooks)  # type: ignore[union-attr]


@pytest.mark.usefixtures("fresh_fleet")
def test_a_whole_model_is_counted_for_one_step_once_asked(capsys: pytest.CaptureFixture) -> None:
    model, before = trained(1, asks=True)
    assert before is not None
    assert before.held is not None
    assert before.held.activations is None
    assert hooks(model) == 0
    held = fleet.explain().held
    assert held is not None
    # The input, and what Tanh returns, which the second layer gets: 16 samples in float32.
    assert held.activations == 16 * (4 + 8) * 4
    trainable = (4 * 8 + 8 + 8 * 2 + 2) * 4
    assert (held.parameters, held.gradients) == (trainable, trainable)
    assert held.state == pytest.approx(2 * trainable, rel=0.05)
    assert held.total == held.activations + 2 * trainable + held.state
    assert capsys.readouterr().out.count("?: known after the next training step") == 1


@pytest.mark.usefixtures("fresh_fleet")
def test_nothing_is_counted_unless_someone_asks() -> None:
    model, _ = trained(0, asks=False)
    assert hooks(model) == 0


@pytest.mark.usefixtures("fresh_fleet")
def test_copies_of_a_model_count_nothing() -> None:
    model, _ = trained(0, asks=True)
    assert hooks(model) == 2
    for made in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        made(torch.ones(64, 4)).sum().backward()
    model.eval()
    model(torch.ones(64, 4))
    assert fleet.explain().held.activations is None  # type: ignore[union-attr]
