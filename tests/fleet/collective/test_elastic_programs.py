"""Programs in elastic jobs: runs broken by a lost worker are rolled back."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from elastic_results import require_each_sample_once, used_samples
from test_elastic import Job, require_undisturbed

from fleetx import fleet, static
from fleetx.fleet.collective.elastic_program import SUPPORTED
from fleetx.fleet.collective.elastic_rules import check
from fleetx.static import layers
from fleetx.static.run.decided_run import without_result
from fleetx.step.technique import Job as StepJob
from fleetx.techniques.dgc import Dgc


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


def test_techniques_with_a_state_per_worker_are_refused() -> None:
    strategy = fleet.DistributedStrategy()
    strategy.dgc = True
    job = StepJob(strategy=strategy, workers=2)
    with pytest.raises(ValueError, match=r"strategy.dgc cannot be used in a program in an elastic"):
        check(job, [Dgc(job)], SUPPORTED, "a program in an elastic job")


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
