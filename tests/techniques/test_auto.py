"""`auto`: candidates, the choice, and a search that leaves no trace but its choice."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fleetx.fleet.strategy import DistributedStrategy
from fleetx.techniques import auto

sys.path.insert(0, str(Path(__file__).parent))

from running import run


def names(strategy: DistributedStrategy, **facts: Any) -> list[str]:
    job = auto.Facts(**{"workers": 1, "device": "cpu", "parameters": 10, **facts})
    config = auto.AutoConfig.read(strategy.auto_configs)
    return [c.name for c in auto.candidates(strategy, config, job=job, machines=1)]


def test_only_speed_and_memory_by_default() -> None:
    strategy = DistributedStrategy()
    assert names(strategy) == ["as it is", "amp bfloat16"]
    several = names(strategy, workers=4, parameters=10**7)
    assert several[0] == "as it is"
    assert "fp16_allreduce" in several
    assert "amp bfloat16 + fp16_allreduce + buckets of 4 MB" in several
    assert not any(word in name for name in several for word in auto.CHANGE_MATHEMATICS)


def test_what_is_set_stays() -> None:
    strategy = DistributedStrategy()
    strategy.amp = True
    assert names(strategy) == ["as it is"]


def test_more_is_tried_if_it_is_allowed() -> None:
    strategy = DistributedStrategy()
    strategy.auto_configs = {"techniques": ["localsgd"]}
    assert "localsgd" in names(strategy)
    strategy.auto_configs = {"techniques": ["faster"]}
    with pytest.raises(ValueError, match="'faster'.*localsgd"):
        names(strategy)


def trial(name: str, seconds: float | None) -> auto.Trial:
    return auto.Trial(candidate=auto.Candidate(name, {}), seconds=seconds, note="why")


def test_the_fastest_is_taken_if_it_is_clearly_faster() -> None:
    plain, little, much = trial("plain", 1.0), trial("little", 0.99), trial("much", 0.5)
    assert auto.best([plain, little]) is plain
    assert auto.best([plain, little, much]) is much
    with pytest.raises(RuntimeError, match="broken: why"):
        auto.best([trial("broken", None)])


def test_the_time_limit_ends_the_search() -> None:
    tried = []

    def measure(candidate: auto.Candidate) -> auto.Trial:
        tried.append(candidate.name)
        return auto.Trial(candidate=candidate, seconds=1.0)

    found = [auto.Candidate(name, {}) for name in "abc"]
    trials = auto.search(found, measure, auto.AutoConfig(time_limit=1e-9))
    assert tried == ["a"]
    assert [t.note for t in trials[1:]] == ["not tried: the time was up"] * 2


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "choice"
    path.write_text("{")
    facts = auto.Facts(workers=1, device="cpu", parameters=1)
    with pytest.raises(ValueError, match=str(path)):
        auto.recall(auto.AutoConfig(file=str(path)), facts)


def test_a_choice_for_another_job_is_not_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = auto.AutoConfig(file=str(tmp_path / "choice"))
    facts = auto.Facts(workers=1, device="cpu", parameters=1)
    chosen = auto.Trial(candidate=auto.Candidate("amp", {"amp": True}), seconds=1.0)
    auto.remember(config, facts, [chosen], chosen)
    assert auto.recall(config, facts) == chosen.candidate
    assert json.loads(Path(config.file).read_text())["tried"][0]["seconds"] == 1.0
    other = auto.Facts(workers=2, device="cpu", parameters=1)
    assert auto.recall(config, other) is None
    assert "another job" in capsys.readouterr().err


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


def test_too_little_memory_is_said(searched: list[dict[str, Any]]) -> None:
    for result in searched:
        assert "memory_limit_mb" in result["too small"]
