"""Programs in elastic jobs: a run that a lost worker breaks is taken back, and training goes on."""

import json
from pathlib import Path
from typing import Any

import pytest
from elastic_results import require_each_sample_once, used_samples
from test_elastic import Job, require_undisturbed

pytestmark = pytest.mark.slow


def test_program_trains_like_a_module(tmp_path: Path) -> None:
    common = {"event": "kill", "worker": 1, "batch": 4, "until": [3, 2, 3], "program": True}
    results = Job(tmp_path, **common).results()
    assert results[0]["sizes"][:4] == [3, 3, 3, 2]
    require_undisturbed(results, tmp_path, within=1e-5)  # the rate of a program is a float32


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
