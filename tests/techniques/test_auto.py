"""`auto`: candidates, the choice, and a search that leaves no trace but its choice."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from running import run

from fleetx import fleet
from fleetx.fleet.strategy.distributed_strategy import DistributedStrategy
from fleetx.runtime import cpu_isa
from fleetx.step.technique import Job
from fleetx.techniques import auto
from fleetx.techniques.auto_candidates import (
    AutoConfig,
    Candidate,
    Facts,
    candidates,
    changing_mathematics,
)
from fleetx.techniques.auto_trials import Trial, best, nothing_fits, steps_to_measure, table

pytestmark = pytest.mark.usefixtures("fresh_fleet")

FACTS = Facts(workers=1, device="cpu", parameters=10)


def names(strategy: DistributedStrategy, **facts: Any) -> list[str]:
    config = AutoConfig.read(strategy.auto_configs)
    return [c.name for c in candidates(strategy, config, dataclasses.replace(FACTS, **facts))]


def test_only_speed_and_memory_by_default() -> None:
    strategy = DistributedStrategy()
    assert names(strategy) == ["as it is", "amp bfloat16"]
    several = names(strategy, workers=4, parameters=10**7)
    assert several[0] == "as it is"
    assert "fp16_allreduce" in several
    assert "amp bfloat16 + fp16_allreduce + buckets of 4 MB" in several
    assert not any(word in name for name in several for word in changing_mathematics())


def test_what_is_set_stays() -> None:
    strategy = DistributedStrategy()
    strategy.amp = True
    assert names(strategy) == ["as it is"]


def test_the_named_type_of_half_precision_is_tried() -> None:
    strategy = DistributedStrategy()
    assert names(strategy, device="cuda") == ["as it is", "amp bfloat16", "amp float16"]
    strategy.amp_configs = {"dtype": "float16"}
    assert names(strategy) == ["as it is", "amp float16"]
    strategy.amp_configs = {"dtype": "auto", "use_pure_bf16": True}
    assert names(strategy, device="cuda") == ["as it is", "amp bfloat16"]


def test_more_is_tried_if_it_is_allowed() -> None:
    strategy = DistributedStrategy()
    strategy.auto_configs = {"techniques": ["localsgd", "gradient_merge"]}
    every = [f"localsgd every {k} steps" for k in (4, 8, 16)]
    assert {*every, "gradient_merge"} <= {*names(strategy, workers=2)}
    assert not any("localsgd" in name for name in names(strategy))  # alone, nothing to save
    config = AutoConfig.read(strategy.auto_configs)
    facts = dataclasses.replace(FACTS, workers=2)
    tried = {c.name: c for c in candidates(strategy, config, facts)}
    followed = tried[every[1]].applied_to(strategy)
    assert followed.localsgd
    assert followed.localsgd_configs["k_steps"] == 8
    # Whole intervals are measured: in fewer steps nothing might be sent.
    assert steps_to_measure(AutoConfig(steps=9), followed) == 16
    assert steps_to_measure(AutoConfig(steps=9), strategy) == 9
    strategy.localsgd_configs = {"k_steps": 5}
    assert "localsgd" in names(strategy, workers=2)
    strategy.auto_configs = {"techniques": ["faster"]}
    with pytest.raises(ValueError, match="'faster'.*localsgd"):
        names(strategy)


def trial(name: str, seconds: float | None) -> Trial:
    return Trial(candidate=Candidate(name, {}), seconds=seconds, note="why")


def test_the_fastest_is_taken_if_it_is_clearly_faster() -> None:
    plain, little, much = trial("plain", 1.0), trial("little", 0.99), trial("much", 0.5)
    assert best([plain, little]) is plain
    assert best([plain, little, much]) is much
    broken = [trial(f"broken {i}", None) for i in range(7)]
    assert best(broken) is None
    assert "(broken 0: why; " in nothing_fits(broken, AutoConfig())
    assert "broken 4: why; and 2 more)" in nothing_fits(broken, AutoConfig())


def test_the_table_shows_what_is_known() -> None:
    taken = Trial(candidate=Candidate("fast", {}), seconds=0.5, samples=8, bytes_sent=2e6, note="x")
    lines = table([taken, trial("left out", None)], taken).splitlines()
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]
    assert ["fast", "16.0", "2.00", "-", "taken; x"] in cells
    assert ["left out", "-", "-", "-", "why"] in cells


def test_the_time_limit_ends_the_search() -> None:
    tried = []

    def measure(candidate: Candidate) -> Trial:
        tried.append(candidate.name)
        return Trial(candidate=candidate, seconds=1.0)

    found = [Candidate(name, {}) for name in "abc"]
    trials = auto.search(found, measure, AutoConfig(time_limit=1e-9), Job(strategy=None))
    assert tried == ["a"]
    assert [t.note for t in trials[1:]] == ["not tried: the time was up"] * 2


class Deciding:
    """Decides with a file; what is measured last is the fastest."""

    def __init__(self, file: Path, **settings: Any) -> None:
        self.strategy = DistributedStrategy()
        self.strategy.auto_configs = {"file": str(file), **settings}
        self.measured: list[str] = []
        self.refused = ""

    def __call__(self, **facts: Any) -> DistributedStrategy:
        self.measured.clear()
        job = dataclasses.replace(FACTS, **facts)
        alone = Job(strategy=self.strategy)
        return auto.decide(self.strategy, job, self._measure, self._check, alone)

    def _measure(self, candidate: Candidate, config: AutoConfig) -> Trial:
        self.measured.append(candidate.name)
        return Trial(candidate=candidate, seconds=0.5 ** len(self.measured), samples=8)

    def _check(self, candidate: Candidate) -> None:
        if self.refused:
            raise ValueError(self.refused)


def test_a_choice_is_taken_over_by_the_same_job_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "choice"
    decide = Deciding(file, techniques=["gradient_merge"])
    assert decide().gradient_merge
    assert len(decide.measured) == 4
    kept = json.loads(file.read_text())
    assert kept["name"] == decide.measured[-1]
    capsys.readouterr()
    assert decide().gradient_merge
    assert decide.measured == []
    said = capsys.readouterr().err
    assert f"auto: 'amp bfloat16 + gradient_merge', as {file} remembers it" in said
    assert f"measured {kept['date']}: 128.0 samples/s, best of 4" in said
    for facts, words in (
        ({"workers": 2}, "another job (workers 1 instead of 2)"),
        ({"model": "x", "batch": "y", "machines": 2}, "; machines 1 instead of 2 and 1 more)"),
        ({"strategy": {"strategy.nccl_comm_num": "2"}}, "strategy.nccl_comm_num not set instead"),
    ):
        before = file.read_text()
        decide(**facts)
        assert decide.measured
        assert words in capsys.readouterr().err
        assert json.loads(file.read_text())["job"] != json.loads(before)["job"]
        file.write_text(before)


def test_a_choice_must_be_allowed_today(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "choice"
    Deciding(file, techniques=["gradient_merge"])()
    decide = Deciding(file)  # the strategy no longer allows it
    assert not decide().gradient_merge
    assert "which is not to be tried today; measuring anew" in capsys.readouterr().err
    decide.refused = "does not go together"
    decide()
    assert decide.measured
    assert "refused today (does not go together)" in capsys.readouterr().err


OLD = '{"job": {"workers": 1}, "name": "amp", "changes": {}}'


@pytest.mark.parametrize("text", [OLD, "{", "[]"])
def test_an_old_file_is_replaced_a_foreign_one_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    file = tmp_path / "choice"
    file.write_text(text)
    decide = Deciding(file)
    decide()
    assert decide.measured
    said = capsys.readouterr().err
    if text == OLD:
        assert f"{file} was written by another version of FleetX; measuring anew." in said
        assert json.loads(file.read_text())["name"] == "amp bfloat16"
    else:
        assert f"{file} is not a choice that auto has written and stays as it is" in said
        assert file.read_text() == text


def test_a_cpu_that_dies_of_half_precision_is_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    decide = Deciding(tmp_path / "here")
    assert decide().amp  # where it can run
    probe = partial(
        cpu_isa.half_precision_fails,
        {**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
        cpuinfo="flags : fpu amx_tile amx_bf16\n",
        probe=[sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGILL)"],
    )
    monkeypatch.setattr(auto, "half_precision_fails", probe)
    assert not decide().amp  # a remembered choice is not taken over either
    assert "refused today (bfloat16 cannot run here: it ends by" in capsys.readouterr().err
    strategy = DistributedStrategy()
    strategy.auto = True
    file = tmp_path / "choice"
    strategy.auto_configs = {"file": str(file), "steps": 1}
    fleet.init(is_collective=True, strategy=strategy)
    model = fleet.distributed_model(torch.nn.Linear(4, 2))
    optimizer = fleet.distributed_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
    assert not fleet._final_strategy().amp
    kept = json.loads(file.read_text())
    notes = {t["name"]: t["note"] for t in kept["tried"]}
    assert notes["amp bfloat16"] == "bfloat16 cannot run here: it ends by SIGILL"
    assert kept["job"]["batch"] == "torch.float32[3, 4]"
    assert kept["job"]["optimizer"] == "SGD"


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run("auto.py", tmp_path_factory.mktemp("auto"))


@pytest.mark.parametrize("mode", ["eager", "static"])
def test_a_search_leaves_no_trace_but_its_choice(searched: list[dict[str, Any]], mode: str) -> None:
    for result in searched:
        found = result[mode]
        assert found["same"], found["losses"]
        assert not found["auto"]
        assert found["choice"] == searched[0][mode]["choice"]
        tried = {line["name"]: line["seconds"] for line in found["tried"]}
        assert tried["as it is"] > 0
        assert tried["recompute"] > 0
        assert tried["amp bfloat16 + fp16_allreduce"] > 0
        assert ("gradient_merge" in tried) == (mode == "eager")
        words = found["choice"].replace("as it is", "").split(" + ")
        assert len(found["applied"]) == len([w for w in words if w and "buckets" not in w])


def test_local_sgd_is_tried_with_several_intervals(searched: list[dict[str, Any]]) -> None:
    tried = searched[0]["local"]
    assert list(tried) == ["as it is", *(f"localsgd every {k} steps" for k in (4, 8, 16))]
    assert all(tried.values())


def test_strategies_that_fit_into_a_workers_memory(searched: list[dict[str, Any]]) -> None:
    for result in searched:
        found = result["limited"]
        tried = {line["name"]: line for line in found["tried"]}
        stages = [f"sharding {stage}" for stage in (1, 2, 3)]
        assert list(tried) == ["as it is", *stages, "tensor_parallel", "pipeline"]
        assert "left out: tensor_parallel has no plan for Seq" in tried["tensor_parallel"]["note"]
        assert "call model.train_batch((x, y), optimizer)" in tried["pipeline"]["note"]
        assert "more than worker_memory_mb" in tried["as it is"]["note"]
        assert tried["as it is"]["seconds"] is None
        assert found["choice"] in tried
        assert tried[found["choice"]]["seconds"] > 0
        assert found["choice"] != "as it is"
        assert found["found"] == found["plain"]
        assert "for modules but not for programs" in result["of a program"]


def test_too_little_memory_is_said(searched: list[dict[str, Any]]) -> None:
    for result in searched:
        assert "memory_limit_mb" in result["too small"]
