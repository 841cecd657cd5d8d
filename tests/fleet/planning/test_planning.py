"""Plans are computed from what a model without values shows, and say so."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from fleetx import cli
from fleetx.comm.layout import Degrees
from fleetx.fleet.planning.cluster import Cluster, quantity
from fleetx.fleet.planning.costs import costs_of
from fleetx.fleet.planning.model_figures import ModelFigures, examine
from fleetx.fleet.planning.plan import Plan, plans
from fleetx.fleet.planning.report import ranked, report
from fleetx.fleet.strategy.distributed_strategy import DistributedStrategy
from fleetx.step.compose import choose
from fleetx.step.technique import Job, ring_bytes

WIDTH, BATCH = 64, 8
MODEL = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))

class Net(nn.Sequential):
    tensor_parallel_plan = {"*.up": "colwise", "*.down": "rowwise"}

def make():
    return Net(*(Block() for _ in range(4))), (torch.randn(8, 64),)

def nothing():
    return 5
"""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Net(nn.Sequential):
    tensor_parallel_plan = {"*.up": "colwise", "*.down": "rowwise"}


def network() -> Net:
    return Net(*(Block() for _ in range(4)))


@pytest.fixture(scope="module")
def figures() -> ModelFigures:
    with torch.device("meta"):
        return examine(network(), (torch.randn(BATCH, WIDTH),))


def cluster(**more: float) -> Cluster:
    given = {"memory": 1e9, "bandwidth": 1e6, "inside": 1e8, "flops": 1e9, **more}
    return Cluster(workers=4, per_machine=2, device="cpu", **given)


ELEMENTS = 4 * (2 * 4 * WIDTH * WIDTH + 5 * WIDTH)


def test_a_model_without_values_has_the_figures_of_one_with_values(figures: ModelFigures) -> None:
    assert sum(figures.sizes.elements) == ELEMENTS
    # Two operations per weight and sample forward, four backward, less the inputs' own gradient.
    weights = 4 * 2 * 4 * WIDTH * WIDTH
    assert figures.operations == (6 * weights - 2 * 4 * WIDTH * WIDTH) * BATCH
    seen: dict[int, torch.UntypedStorage] = {}
    model = network()
    own = {id(p.untyped_storage()) for p in model.parameters()}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor.untyped_storage()) not in own:
            seen[id(tensor.untyped_storage())] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept):
        model(torch.randn(BATCH, WIDTH))
    assert figures.saved == sum(storage.nbytes() for storage in seen.values())
    assert figures.blocks["2"].elements == ELEMENTS // 4
    assert figures.blocks["2"].entering == figures.layers["2"].leaving == BATCH * WIDTH * 4
    assert figures.block_classes == ("Block",)


@pytest.mark.parametrize(("stage", "share"), [(0, (1, 1, 1)), (1, (1, 1, 4)), (2, (1, 4, 4))])
def test_memory_of_stages(figures: ModelFigures, stage: int, share: tuple[int, int, int]) -> None:
    degrees = Degrees(sharding=4) if stage else Degrees(dp=4)
    found = costs_of(Plan(degrees=degrees, stage=stage), figures, cluster(), 2)
    whole = 4 * ELEMENTS
    expected = (whole / share[0], whole / share[1], 2 * whole / share[2])
    assert (found.held.parameters, found.held.gradients, found.held.state) == expected
    assert found.held.activations == figures.saved
    assert found.held.gathered == 0


def test_time_is_that_of_the_busiest_link(figures: ModelFigures) -> None:
    """A ring over all workers leaves a machine once; rings of copies leave it once per worker."""
    slow = cluster(flops=1e15)
    whole = 4.0 * ELEMENTS
    ring = costs_of(Plan(degrees=Degrees(dp=4)), figures, slow, 2)
    assert ring.between == pytest.approx(ring_bytes(whole, 4))
    assert ring.seconds == pytest.approx(ring.between / 1e6, rel=1e-4)
    inside = costs_of(Plan(degrees=Degrees(dp=2, sharding=2), stage=3), figures, slow, 2)
    assert inside.between == pytest.approx(2 * ring_bytes(whole / 2, 2), rel=0.01)
    assert inside.inside == pytest.approx(ring_bytes(whole, 2) * 2, rel=0.01)
    layers = costs_of(Plan(degrees=Degrees(dp=2, mp=2)), figures, slow, 2)
    # Sums of what the second layer returns, and of the gradient of what the first one gets.
    assert layers.inside == pytest.approx(8 * ring_bytes(BATCH * WIDTH * 4, 2))


def test_compute_of_pipelines_and_recomputation(figures: ModelFigures) -> None:
    near = cluster(bandwidth=1e15, inside=1e15)
    plain = costs_of(Plan(degrees=Degrees(dp=4)), figures, near, 2)
    again = costs_of(Plan(degrees=Degrees(dp=4), recompute=True), figures, near, 2)
    assert again.seconds == pytest.approx(plain.seconds * 4 / 3)
    assert again.held.activations < plain.held.activations / 2
    piped = costs_of(Plan(degrees=Degrees(dp=2, pp=2), micro_batches=8), figures, near, 2)
    assert piped.seconds == pytest.approx(plain.seconds / 2 * 9 / 8)
    assert piped.held.parameters == plain.held.parameters / 2
    both = Plan(degrees=Degrees(pp=2, sharding=2), stage=1, micro_batches=8)
    assert costs_of(both, figures, near, 2).held.state == pytest.approx(plain.held.state / 4)


def test_every_plan_is_one_that_the_strategy_accepts(figures: ModelFigures) -> None:
    found = list(plans(figures, 4, 2))
    ways = {Degrees(dp=4), Degrees(dp=2, pp=2), Degrees(pp=2, mp=2), Degrees(pp=2, sharding=2)}
    assert {plan.degrees for plan in found} >= ways
    for plan in found:
        strategy = DistributedStrategy()
        for name, value in plan.settings(figures).items():
            setattr(strategy, name, value)
        job = Job(strategy=strategy, workers=4)
        choose(job)
        assert job.layout.degrees == plan.degrees, plan.name


def test_those_that_fit_come_first(figures: ModelFigures) -> None:
    whole = costs_of(Plan(degrees=Degrees(dp=4)), figures, cluster(), 2).memory
    found = ranked(figures, cluster(memory=whole / 2), 2)
    fits = [costs.memory <= whole / 2 for _, costs in found]
    assert fits == sorted(fits, reverse=True)
    assert any(fits)
    assert not all(fits)
    speeds = [costs.samples_per_second for (_, costs), fit in zip(found, fits, strict=True) if fit]
    assert speeds == sorted(speeds, reverse=True)
    assert "No plan fits into 10.0 kB" in report(figures, cluster(memory=1e4), 2, 3)


@pytest.mark.parametrize(
    ("text", "units", "expected"),
    [("24GB", ("b",), 24e9), ("16GiB", ("b",), 2**34), ("10Gbit", ("bit", "b"), 1.25e9),
     ("200Mbit/s", ("bit", "b"), 25e6), ("60T", ("flop", ""), 6e13)],
)  # fmt: skip
def test_quantities(text: str, units: tuple[str, ...], expected: float) -> None:
    assert quantity(text, units) == expected


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "net.py"
    file.write_text(MODEL)
    options = ["--memory", "1MB", "--bandwidth", "200Mbit", "--flops", "10Gflops"]
    many = ["--workers", "4", "--per-machine", "2"]
    assert cli.main(["plan", f"{file}:make", *many, *options]) == 0
    text = capsys.readouterr().out
    assert "of 22 plans fit" in text
    assert "strategy.pipeline = True" in text
    assert "How these figures were found" in text
    assert cli.main(["plan", f"{file}:nothing", *many, *options]) == 1
    assert "must return a module and the tuple of a batch" in capsys.readouterr().err
    assert cli.main(["plan", f"{file}:missing", *many, *options]) == 1
    assert "has no function 'missing'" in capsys.readouterr().err
    assert cli.main(["plan", "net.py", *many, *options]) == 1
    assert "does not name a function in a file" in capsys.readouterr().err
    wrong = ["--workers", "5", "--per-machine", "2"]
    assert cli.main(["plan", f"{file}:make", *wrong, *options]) == 1
    assert "choose a divisor of 5" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["plan", f"{file}:make", *many, *options, "--memory", "much"])
    assert "is not a quantity" in capsys.readouterr().err
