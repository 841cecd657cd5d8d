"""Programs in elastic jobs: runs broken by a lost worker are rolled back."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from elastic_results import require_each_sample_once, used_samples
from test_elastic import Job, require_undisturbed

from fleetx import fleet, static
from fleetx.fleet.collective.elastic_rules import check
from fleetx.static import layers
from fleetx.static.run.decided_run import without_result
from fleetx.step.technique import Job as StepJob
from fleetx.techniques.sharding import Sharding

MERGE = {"k_steps": 2}


@pytest.mark.slow
def test_program_trains_like_a_module(tmp_path: Path) -> None:
    common = {"event": "kill", "worker": 1, "batch": 4, "until": [3, 2, 3], "program": True}
    results = Job(tmp_path, **common).results()
    assert results[0]["sizes"][:4] == [3, 3, 3, 2]
    require_undisturbed(results, tmp_path, within=1e-5)  # the rate of a program is a float32


@pytest.mark.slow
def test_techniques_of_programs_survive_a_kill(tmp_path: Path) -> None:
    strategy: dict[str, Any] = {
        **{"amp": True, "amp_configs": {"init_loss_scaling": 64.0}},
        **{"recompute": True, "recompute_configs": {"checkpoints": ["hidden.tmp_2"]}},
        **{"gradient_clip": True, "gradient_clip_configs": {"norm": 1.0}},
        **{"lars": True, "fp16_allreduce": True},
    }
    common = {"event": "kill", "worker": 2, "batch": 5, "until": [3, 2, 3], "program": True}
    results = Job(tmp_path, **common, strategy=strategy).results()
    assert len({json.dumps(r["parameters"]) for r in results}) == 1
    require_each_sample_once(used_samples(tmp_path), results[0]["epochs"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("techniques", "width"),
    [
        ({"gradient_merge": {"k_steps": 2}}, 3),
        ({"gradient_merge": {"k_steps": 2}, "dgc": {"sparsity": [0.9]}}, 128),
        ({"localsgd": {"k_steps": 2, "begin_step": 1}}, 3),
        ({"adaptive_localsgd": {"init_k_steps": 2, "begin_step": 1}, "gradient_merge": MERGE}, 3),
        ({"signsgd": {}, "gradient_clip": {"norm": 1.0}}, 3),
        ({"powersgd": {"start_powerSGD_iter": 2}}, 32),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_workers_of_programs_that_differ_between_steps(
    tmp_path: Path, techniques: dict[str, dict[str, Any]], width: int
) -> None:
    """The kill is in the middle of a step of several runs."""
    strategy: dict[str, Any] = dict.fromkeys(techniques, True)
    strategy |= {f"{name}_configs": given for name, given in techniques.items() if given}
    common = {"event": "kill", "worker": 2, "batch": 6, "until": [3, 2, 3], "program": True}
    job = Job(tmp_path, "--max_restart=5", **common, strategy=strategy, width=width, ends="step")
    results = job.results()
    assert len({json.dumps(r["parameters"]) for r in results}) == 1
    assert len({json.dumps(r["sizes"]) for r in results}) == 1
    if "localsgd" not in "".join(techniques):  # a worker without samples trains on another's
        require_each_sample_once(used_samples(tmp_path), results[0]["epochs"])
    if list(techniques) == ["gradient_merge"]:
        require_undisturbed(results, tmp_path, within=1e-5, merged=2)


def test_divided_state_is_refused() -> None:
    strategy = fleet.DistributedStrategy()
    strategy.sharding = True
    job = StepJob(strategy=strategy, workers=2)
    with pytest.raises(ValueError, match=r"strategy.sharding cannot be used in an elastic job"):
        check(job, [Sharding(job)])


def test_aborted_run_has_no_result() -> None:
    program = static.Program()
    with static.program_guard(program):
        x = static.data("x", [None, 4], "float32")
        label = layers.argmax(x, axis=1)
        mean = layers.mean(x)
    feed = {"x": np.zeros((3, 4), np.float32)}
    found = without_result(program, [x.name, label.name, mean.name], feed)
    assert [value.shape for value in found[:2]] == [(3, 4), (3,)]
    assert np.isnan(found[0]).all()
    assert np.isnan(found[2]).all()
    assert (found[1] == 0).all()
