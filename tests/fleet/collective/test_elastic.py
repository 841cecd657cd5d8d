"""Elastic jobs: workers are killed and frozen; training continues as if they had left."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import elastic_worker
import pytest
from elastic_results import (
    plan_of,
    require_close,
    require_each_sample_once,
    samples_of_steps,
    train_alone,
    used_samples,
)
from torch.utils.data import DataLoader

import warm_start
from fleetx import fleet
from fleetx.fleet.collective.elastic_rules import prepare_step
from fleetx.launch import processes
from fleetx.step.technique import Job as StepJob
from fleetx.step.train_step import TrainStep
from fleetx.techniques.sharding import Sharding
from waiting import LIMIT, wait_until

CLIP = {"norm": 1.0}
WORKER = Path(elastic_worker.__file__)


class Job:
    """An elastic job with three workers."""

    def __init__(self, folder: Path, *flags: str, **settings: Any) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "fleetx.launch", "--elastic", "--nproc_per_node=3"]
        command += [f"--log_dir={folder / 'log'}", *flags, str(WORKER), str(folder)]
        with open(folder / "output", "wb") as output:
            self.process = subprocess.Popen(
                [*command, json.dumps(settings)],
                env=warm_start.environment(OMP_NUM_THREADS="1"),
                cwd=folder,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def text(self) -> str:
        logs = sorted((self.folder / "log").glob("workerlog.*"))
        return "\n".join(path.read_text() for path in [self.folder / "output", *logs])

    def results(self) -> list[dict[str, Any]]:
        assert self.process.wait(LIMIT) == 0, self.text()
        return [json.loads((self.folder / f"result.{n}").read_text()) for n in range(3)]


def require_undisturbed(
    results: list[dict[str, Any]], folder: Path, within: float = 1e-9, merged: int = 1
) -> None:
    """Check that the job trained as one process does with steps of the same sizes."""
    assert len({json.dumps(r["parameters"]) for r in results}) == 1
    expected = train_alone(results[0], plan_of(), 0.1, 0.9, merged)
    require_close(results[0]["parameters"], expected, within)
    require_each_sample_once(used_samples(folder), results[0]["epochs"])


@pytest.mark.slow
def test_killed_worker_costs_one_step_and_rejoins(tmp_path: Path) -> None:
    loader = {"batch_size": 2, "num_workers": 1}
    job = Job(tmp_path, event="kill", worker=1, batch=4, until=[3, 2, 3], loader=loader)
    results = job.results()
    assert results[0]["sizes"][:4] == [3, 3, 3, 2]  # the fourth step is without worker 1
    require_undisturbed(results, tmp_path)


@pytest.mark.slow
def test_global_batch_is_kept_by_accumulation(tmp_path: Path) -> None:
    """The samples come from a reader."""
    loader = {"global_batch_size": 10, "micro_batch_size": 2}
    common = {"event": "kill", "worker": 1, "batch": 4, "until": [3, 2, 3], "reader": True}
    results = Job(tmp_path, **common, loader=loader).results()
    assert len({json.dumps(r["parameters"]) for r in results}) == 1
    sizes = results[0]["sizes"]
    expected = train_alone(results[0], plan_of(global_batch_size=10), 0.1, 0.9)
    require_close(results[0]["parameters"], expected)
    require_each_sample_once(used_samples(tmp_path), results[0]["epochs"])
    # An epoch of 23 samples has steps of 10, 10 and 3, with three workers and with two.
    counts = samples_of_steps(tmp_path)
    assert [counts[n + 1] for n in range(len(sizes))] == [
        (10, 10, 3)[n % 3] for n in range(len(sizes))
    ]


@pytest.mark.slow
def test_worker_that_has_its_batch_discards_the_step_of_a_lost_one(tmp_path: Path) -> None:
    """Worker 0 learns of the loss when it has its batch and has not run the model yet."""
    job = Job(tmp_path, event="kill", worker=1, batch=4, holds=0, until=[3] * 8)
    results = job.results()
    assert "It is restarted" in job.text()
    require_undisturbed(results, tmp_path)


@pytest.mark.slow
def test_own_data_loader_prefetches_for_changing_workers(fresh_fleet: Any, tmp_path: Path) -> None:
    """Six batches are prepared ahead; those that were prepared for another group are not used."""
    job = Job(tmp_path, event="kill", worker=1, batch=2, until=[3, 2, 3], own=True)
    results = job.results()
    assert results[0]["sizes"][:2] == [3, 2]
    require_undisturbed(results, tmp_path)
    fleet.init(is_collective=True)
    loader, sizes = own_loader(2), results[0]["sizes"]
    saved = fleet.load_checkpoint(str(tmp_path / "saved"), loader=loader)
    position = [0, 0]
    for size in sizes[: saved["steps"]]:
        if position[1] == elastic_worker.SAMPLES:
            position = [position[0] + 1, 0]
        position[1] += plan_of().total(position[1], size)
    assert saved["steps"] >= len(sizes) - 1
    assert list(loader.state_dict().values()) == position


def own_loader(batch_size: int, **options: Any) -> Any:
    data = elastic_worker.Numbers()
    sampler = fleet.ElasticSampler(data, batch_size)
    return fleet.elastic_loader(DataLoader(data, batch_sampler=sampler, **options))


def test_position_of_an_own_data_loader_is_in_the_checkpoint(
    fresh_fleet: Any, tmp_path: Path
) -> None:
    fleet.init(is_collective=True)
    seen = []
    loader = own_loader(5)
    for _ in loader.epochs(1):
        for step, (ids, _, _) in enumerate(loader):
            seen += ids.tolist()
            if step == 2:
                fleet.save_checkpoint(str(tmp_path), loader=loader)
                break
        break
    again = own_loader(5)
    fleet.load_checkpoint(str(tmp_path), loader=again)
    for _ in again.epochs(1):
        seen += [index for ids, _, _ in again for index in ids.tolist()]
    assert len(seen) == len(set(seen)) == elastic_worker.SAMPLES


def test_data_loader_is_checked(fresh_fleet: Any) -> None:
    fleet.init(is_collective=True)
    data = elastic_worker.Numbers()
    loader = DataLoader(data, batch_sampler=fleet.ElasticSampler(data, 2))
    with pytest.raises(RuntimeError, match="not over the DataLoader itself"):
        iter(loader)
    with pytest.raises(ValueError, match="seed=3.: a DataLoader has its own settings"):
        fleet.elastic_loader(loader, seed=3)
    with pytest.raises(TypeError, match="not with a BatchSampler"):
        fleet.elastic_loader(DataLoader(data, batch_size=2))
    with pytest.raises(ValueError, match="in_order=False"):
        own_loader(2, in_order=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("techniques", "settings"),
    [
        ({"localsgd": {"k_steps": 2, "begin_step": 1}}, {}),
        ({"adaptive_localsgd": {"init_k_steps": 2, "begin_step": 1}, "gradient_clip": CLIP}, {}),
        ({"gradient_merge": {"k_steps": 2}, "dgc": {"sparsity": [0.9]}}, {"width": 128}),
        (
            {
                "amp": {"dtype": "float16", "init_loss_scaling": 64.0},
                "recompute": {"checkpoints": ["1.1"]},
                "gradient_clip": CLIP,
                "fp16_allreduce": {},
                "lars": {},
            },
            {"width": 32},
        ),
        (
            {"signsgd": {}, "lamb": {}, "gradient_clip": CLIP},
            {"optimizer": "Adam", "rate": {"lr": 0.01}},
        ),
        (
            {"powersgd": {"start_powerSGD_iter": 2}, "amp": {"dtype": "bfloat16"}},
            {"width": 32, "optimizer": "AdamW", "rate": {"lr": 0.01}},
        ),
    ],
    ids=lambda value: "-".join(value),
)
def test_techniques_survive_a_kill(
    tmp_path: Path, techniques: dict[str, dict[str, Any]], settings: dict[str, Any]
) -> None:
    strategy: dict[str, Any] = dict.fromkeys(techniques, True)
    strategy |= {f"{name}_configs": given for name, given in techniques.items() if given}
    common = {"event": "kill", "worker": 2, "batch": 5, "until": [3, 2, 3], "ends": "step"}
    rate = {"lr": 0.01, "momentum": 0.9}
    job = Job(
        tmp_path, "--max_restart=5", **{**common, "rate": rate, "strategy": strategy, **settings}
    )
    results = job.results()
    assert len({json.dumps(r["parameters"]) for r in results}) == 1
    assert len({json.dumps(r["sizes"]) for r in results}) == 1
    if "localsgd" not in "".join(techniques):  # a worker without samples trains on another's
        require_each_sample_once(used_samples(tmp_path), results[0]["epochs"])


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"batch_size": 4, "micro_batch_size": 2}, "micro_batch_size=2 divides a worker's part"),
        ({"global_batch_size": 4, "micro_batch_size": 0}, "a batch size must be a whole number"),
        (
            {"global_batch_size": 4, "micro_batch_size": 2},
            r"in elastic jobs \(fleetrun",
        ),
    ],
)
def test_parts_of_a_batch_are_checked(
    fresh_fleet: Any, arguments: dict[str, int], error: str
) -> None:
    fleet.init(is_collective=True)
    with pytest.raises(ValueError, match=error):
        fleet.elastic_loader([1, 2, 3], **arguments)


def test_reader_is_a_data_set(fresh_fleet: Any) -> None:
    fleet.init(is_collective=True)
    loader = fleet.elastic_loader(lambda: iter(range(5)), 2)
    for _ in loader.epochs(1):
        assert sorted(number for batch in loader for number in batch.tolist()) == [0, 1, 2, 3, 4]
    with pytest.raises(TypeError, match="must be accessible by index"):
        fleet.elastic_loader(iter([1, 2]), 2)


def test_divided_optimizer_state_is_refused() -> None:
    strategy = fleet.DistributedStrategy()
    strategy.sharding = True
    job = StepJob(strategy=strategy, workers=2)
    with pytest.raises(ValueError, match=r"strategy.sharding cannot be used .* lost with it"):
        prepare_step(TrainStep(), job, [Sharding(job)], lambda: 2.0)


@pytest.mark.slow
def test_frozen_worker_is_excluded_and_rejoins_when_it_wakes(tmp_path: Path) -> None:
    loader = {"global_batch_size": 6}
    job = Job(
        tmp_path,
        "--elastic_timeout=2",
        *("--max_restart=20",),
        event="stop",
        worker=0,
        batch=4,
        until=[3, 2, 3],
        loader=loader,
    )
    pid = tmp_path / "pid.0"

    def is_frozen() -> bool:
        return pid.exists() and processes.state(int(pid.read_text() or 0)) == "T"

    def is_excluded() -> bool:
        text = job.text()
        return "Worker 0 was silent" in text and "goes on with 2" in text

    # On a busy machine others may be excluded too, or worker 0 before it freezes, which it then
    # does not.
    for happened in (is_frozen, is_excluded):
        wait_until(lambda h=happened: h() or job.process.poll() is not None, happened.__name__)
    if job.process.poll() is None:
        os.kill(int(pid.read_text()), signal.SIGCONT)
    results = job.results()
    assert "excluded from the job" in job.text()
    assert len({json.dumps(r["parameters"]) for r in results}) == 1
    expected = train_alone(results[0], plan_of(global_batch_size=6), 0.1, 0.9)
    require_close(results[0]["parameters"], expected)
    require_each_sample_once(used_samples(tmp_path), results[0]["epochs"])
