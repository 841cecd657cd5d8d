"""A NaN ends the training on all workers, in the words of where it entered."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from running import WORKERS, run
from workers import stop_on_nan as worker

import leftovers
import warm_start
from fleetx import fleet
from fleetx.monitor.recorder import Recorder
from fleetx.static.errors import NotFiniteError
from fleetx.static.graph.op_registry import get_op
from fleetx.static.ops.stop_on_nan_op import stop_on_nan
from waiting import LIMIT

pytestmark = pytest.mark.usefixtures("fresh_fleet")

# The step in which all stop: that of the NaN, or the next in which workers meet.
STOPS = {
    **dict.fromkeys(("plain", "minimize", "finite loss", "dgc", "amp, scale 1"), worker.BAD),
    **dict.fromkeys(("merge", "localsgd", "merge localsgd"), 6),
}


@pytest.fixture(scope="module", params=[1, 2])
def trained(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    if request.param == 1:
        modules = {name: worker.modules(name, each) for name, each in worker.CASES.items()}
        programs = {name: worker.programs(worker.CASES[name]) for name in worker.PROGRAMS}
        leftovers.end_sessions()
        return [{"modules": modules, "programs": programs}]
    return run("stop_on_nan.py", tmp_path_factory.mktemp("nan"))


@pytest.mark.parametrize("case", list(STOPS))
def test_modules_stop_together_and_name_step_worker_and_parameter(
    trained: list[dict[str, Any]], case: str
) -> None:
    first = trained[0]["modules"][case]
    assert all(result["modules"][case] == first for result in trained)
    alone = len(trained) == 1 and "localsgd" in case and "merge" not in case
    assert first["stopped"] == (worker.BAD if alone else STOPS[case])
    what = "the loss" if case == "minimize" else "the gradient of '2."
    assert first["words"].startswith(what)
    assert f"in step {worker.BAD} on worker {len(trained) - 1}" in first["words"]


@pytest.mark.parametrize("case", ["plain", "merge", "localsgd"])
def test_programs_stop_together(trained: list[dict[str, Any]], case: str) -> None:
    first = trained[0]["programs"][case]
    assert all(result["programs"][case] == first for result in trained)
    alone = len(trained) == 1 and case == "localsgd"
    assert first["stopped"] == (worker.BAD if alone else STOPS[case])
    where = f"step {worker.BAD} on worker {len(trained) - 1}"
    assert f"the loss became infinite or NaN in {where}" in first["words"]
    # The parameter nearest to the loss, which backward reaches first.
    assert f"'fc_1.b_0' in step {first['stopped']}" in first["words"]


def test_an_overflow_of_amp_is_skipped(trained: list[dict[str, Any]]) -> None:
    for result in trained:
        for kind in ("modules", "programs"):
            assert result[kind]["amp"] == {"stopped": None, "finite": True}


def test_switched_off_it_goes_on(trained: list[dict[str, Any]]) -> None:
    for result in trained:
        for kind in ("modules", "programs"):
            assert result[kind]["off"] == {"stopped": None, "finite": False}


@pytest.mark.slow
def test_a_worker_of_servers_stops_before_it_sends(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fleetx.launch", "--server_num", "1", "--worker_num", "2"]
    command += ["--log_dir", str(tmp_path), str(WORKERS / "stop_on_nan_server.py")]
    environment = warm_start.environment()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode != 0
    words = "the gradient of 'weight' became infinite or NaN in step 3 on worker 1"
    assert words in done.stdout + done.stderr


def test_large_numbers_in_double_precision_are_numbers() -> None:
    worker.begin({"stop_on_nan": True})
    model = fleet.distributed_model(torch.nn.Linear(2, 1).double())
    optimizer = fleet.distributed_optimizer(torch.optim.SGD(model.parameters(), lr=1e-60))
    before = model.weight.detach().clone()
    (1e60 * model(torch.ones(1, 2).double()).sum()).backward()
    optimizer.step()
    torch.testing.assert_close(model.weight, before - 1.0)


@pytest.mark.parametrize(
    ("progress", "said", "is_on"),
    [("1", None, True), ("1", False, False), ("0", None, False), ("0", True, True)],
)
def test_with_a_progress_line_it_is_on_unless_the_script_says_no(
    monkeypatch: pytest.MonkeyPatch, progress: str, said: bool | None, is_on: bool
) -> None:
    monkeypatch.setenv("FLEETX_PROGRESS", progress)
    settings = {} if said is None else {"stop_on_nan": said}
    worker.begin(settings)
    model = fleet.distributed_model(torch.nn.Linear(2, 1))
    optimizer = fleet.distributed_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    assert (optimizer.train_step.guard is not None) is is_on
    monkeypatch.setenv("FLEETX_PROGRESS", "0")
    fleet.init(is_collective=True)


def test_a_measured_loss_that_is_no_number_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder = Recorder([], None)
    for loss in (1.0, float("nan"), float("nan")):
        recorder.note_loss(torch.tensor(loss))
        recorder.step_ended()
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "the loss is nan in step 2"
    ]


def test_a_worker_of_servers_names_itself_in_a_program() -> None:
    nan = torch.full((1,), torch.nan)
    with pytest.raises(NotFiniteError, match="the loss became .* in step 1 on worker 3 .* 'w'"):
        stop_on_nan(
            nan,
            [nan],
            torch.zeros(2, dtype=torch.int64),
            [],
            names={"inputs": {"Param": ["w"]}},
            first_worker=3,
        )
    assert get_op("stop_on_nan").attrs["first_worker"].default == 0
