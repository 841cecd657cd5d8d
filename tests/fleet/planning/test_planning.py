"""Plans are computed from a model on the meta device."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from fleetx import cli
from fleetx.comm.layout import Degrees
from fleetx.fleet.planning.cluster import Cluster, quantity
from fleetx.fleet.planning.costs import costs_of
from fleetx.fleet.planning.memory import memory_of, stage_shares
from fleetx.fleet.planning.model_figures import ModelFigures, examine
from fleetx.fleet.planning.plan import Plan, plans
from fleetx.fleet.planning.report import ranked, report
from fleetx.fleet.planning.traffic import activations_sent
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
    # A full frame of 1514 bytes carries 1448 in TCP.
    assert ring.seconds == pytest.approx(ring.between / 1e6 * 1514 / 1448, rel=1e-4)
    inside = costs_of(Plan(degrees=Degrees(dp=2, sharding=2), stage=3), figures, slow, 2)
    assert inside.between == pytest.approx(2 * ring_bytes(whole / 2, 2), rel=0.01)
    assert inside.inside == pytest.approx(ring_bytes(whole, 2) * 2, rel=0.01)
    layers = costs_of(Plan(degrees=Degrees(dp=2, mp=2)), figures, slow, 2)
    # Sums of what the second layer returns, and of the gradient of what the first one gets.
    assert layers.inside == pytest.approx(8 * ring_bytes(BATCH * WIDTH * 4, 2))


def test_compute_of_pipelines_and_recomputation(figures: ModelFigures) -> None:
    near = cluster(bandwidth=1e15, inside=1e15, adding=1e15)
    plain = costs_of(Plan(degrees=Degrees(dp=4)), figures, near, 2)
    again = costs_of(Plan(degrees=Degrees(dp=4), recompute=True), figures, near, 2)
    assert again.seconds == pytest.approx(plain.seconds * 4 / 3)
    assert again.held.activations < plain.held.activations / 2
    piped = costs_of(Plan(degrees=Degrees(dp=2, pp=2), micro_batches=8), figures, near, 2)
    assert piped.seconds == pytest.approx(plain.seconds / 2 * 9 / 8)
    assert piped.held.parameters == plain.held.parameters / 2
    both = Plan(degrees=Degrees(pp=2, sharding=2), stage=1, micro_batches=8)
    assert costs_of(both, figures, near, 2).held.state == pytest.approx(plain.held.state / 4)


class Uneven(nn.Sequential):
    """Layers with equally many parameters, of which the first two only look them up."""

    tensor_parallel_plan = {"2": "colwise", "3": "rowwise"}

    def __init__(self) -> None:
        tables = [nn.Embedding(WIDTH, WIDTH), nn.Flatten(-2)]
        linear = [nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3)]
        super().__init__(*tables, *linear)


def test_compute_is_that_of_the_largest_stage_and_of_layers_that_stay_whole() -> None:
    with torch.device("meta"):
        uneven = examine(Uneven(), (torch.zeros(BATCH, 1, dtype=torch.long),))
    assert [layer.operations > 0 for layer in uneven.layers.values()] == [False, False, *[True] * 3]
    stages = stage_shares(Plan(degrees=Degrees(pp=2), micro_batches=8), uneven)
    assert stages == pytest.approx([1 / 3, 2 / 3])  # a table and a layer, two layers
    assert uneven.repeated == pytest.approx(1 / 3)  # one layer of three is not divided
    near = cluster(bandwidth=1e15, inside=1e15, adding=1e15)
    plain = costs_of(Plan(degrees=Degrees(dp=4)), uneven, near, 2)
    piped = costs_of(Plan(degrees=Degrees(dp=2, pp=2), micro_batches=8), uneven, near, 2)
    assert piped.seconds == pytest.approx(plain.seconds * 2 / 3 * 9 / 8)
    layers = costs_of(Plan(degrees=Degrees(dp=2, mp=2)), uneven, near, 2)
    assert layers.seconds == pytest.approx(plain.seconds * 2 / 3)
    # Gradients of seven micro-batches are added to those of the first; memory limits that.
    slow = cluster(bandwidth=1e15, inside=1e15, adding=1e6)
    added = costs_of(Plan(degrees=Degrees(pp=2, dp=2), micro_batches=8), uneven, slow, 2)
    largest = 2 * WIDTH * WIDTH * 4
    assert added.compute == pytest.approx(piped.compute + 7 * largest / 1e6)
    assert added.seconds == pytest.approx(added.compute)


def test_only_waiting_for_a_link_is_hidden_on_cpus(figures: ModelFigures) -> None:
    """Cores that copy messages do not compute meanwhile."""
    whole = ring_bytes(4.0 * ELEMENTS, 2)
    plan = Plan(degrees=Degrees(dp=2))

    def seconds(bandwidth: float) -> tuple[float, float]:
        two = Cluster(
            workers=2,
            per_machine=1,
            memory=1e9,
            bandwidth=bandwidth,
            inside=1e8,
            flops=1e9,
            device="cpu",
        )
        found = costs_of(plan, figures, two, 2)
        return found.seconds, found.compute

    slow, compute = seconds(1e6)
    assert slow == pytest.approx(compute / 3 + whole / 1e6 * 1514 / 1448)
    fast, _ = seconds(1e12)
    assert fast == pytest.approx(compute + whole / 1e8)


def test_stages_wait_for_activations_in_both_directions(figures: ModelFigures) -> None:
    entering = BATCH * WIDTH * 4
    for stages, sent in ((2, entering), (4, 1.5 * entering)):
        plan = Plan(degrees=Degrees(pp=stages), micro_batches=8)
        (found,) = activations_sent(plan, figures)
        assert found.sent == pytest.approx(sent)
        assert not found.during
    # Workers that bring a batch each train on all of them.
    joined = Plan(degrees=Degrees(pp=2), micro_batches=8, joins=True)
    assert activations_sent(joined, figures)[0].sent == pytest.approx(2 * entering)
    assert memory_of(joined, figures, 2).activations == pytest.approx(figures.saved / 4)


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
