"""The file of steps: bounded, continued after a restart, readable if damaged."""

import json
import math
import os

import pytest

from fleetx.monitor.record import StepRecord, merged, record_from
from fleetx.monitor.run_folder import read_run, read_steps
from fleetx.monitor.step_file import StepFile

HEAD = {"run": "a", "rank": 0, "workers": 1, "host": "here"}


def record(step: int, loss: float | None = 1.0) -> StepRecord:
    return StepRecord(step, 1, 100.0 + step, 0.5, 0.1, 0.2, 4, loss)


def write(path, steps, head=HEAD, most=100, close=True):
    file = StepFile(path, head, most)
    for step in steps:
        file.take(record(step))
    if close:
        file.close()
    return file


@pytest.mark.parametrize("loss", [None, 0.25, math.inf, math.nan])
def test_a_line_and_back(loss):
    found = record_from(json.loads(record(3, loss).line()))
    assert str(found) == str(record(3, loss))


def test_merged_records_add_up():
    found = merged(record(1, 1.0), merged(record(2, 2.0), record(3, 6.0)))
    assert (found.step, found.steps, found.samples, found.loss) == (3, 3, 12, 3.0)
    assert found.seconds == pytest.approx(1.5)
    assert found.busy == pytest.approx(0.9)


@pytest.mark.parametrize("steps", [7, 100, 333])
def test_long_runs_stay_small_and_whole(tmp_path, steps):
    path = tmp_path / "steps.0.jsonl"
    write(path, range(1, steps + 1), most=16)
    worker = read_steps(path, 0)
    assert len(path.read_text().splitlines()) <= 18
    assert sum(r.steps for r in worker.records) == steps
    assert sum(r.samples for r in worker.records) == 4 * steps
    assert worker.records[-1].step == steps
    assert worker.has_ended
    assert not worker.damaged


def test_another_run_begins_anew(tmp_path):
    path = tmp_path / "steps.0.jsonl"
    write(path, range(1, 4))
    write(path, [1], {**HEAD, "run": "b"})
    assert [r.step for r in read_steps(path, 0).records] == [1]
    write(path, [1], {**HEAD, "run": ""})  # a run without a name is not resumed
    write(path, [1], {**HEAD, "run": ""})
    assert [r.step for r in read_steps(path, 0).records] == [1]


def test_a_worker_that_is_started_again_goes_on(tmp_path):
    path = tmp_path / "steps.0.jsonl"
    write(path, range(1, 4), close=False)._write()
    with path.open("a") as file:
        file.write('{"step": 4, "epo')  # killed while it wrote
    write(path, range(1, 3))
    worker = read_steps(path, 0)
    assert [r.step for r in worker.records] == [1, 2, 3, 4, 5]
    assert (worker.starts, worker.damaged, worker.has_ended) == (2, 1, True)
    write(path, range(1, 60), most=16)
    worker = read_steps(path, 0)
    assert sum(r.steps for r in worker.records) == 64
    assert (worker.starts, worker.damaged) == (3, 0)
    steps = [r.step for r in worker.records]
    assert steps == sorted(steps)


def test_a_full_disk_does_not_end_the_training(tmp_path, capsys):
    path = tmp_path / "steps.0.jsonl"
    file = StepFile(path, HEAD)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, file._file)
    os.close(full)
    for step in range(1, 4):
        file.take(record(step))
        file._write()
    file.close()
    assert capsys.readouterr().err.count("steps.0.jsonl cannot be written (No space left") == 1


def test_what_is_wrong_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        read_run(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match="there is no steps.N.jsonl in .*--log_dir"):
        read_run(tmp_path)
    write(tmp_path / "steps.0.jsonl", [1, 2], {**HEAD, "workers": 3})
    write(tmp_path / "steps.1.jsonl", [], {**HEAD, "workers": 3}, close=False)
    write(tmp_path / "steps.7.jsonl", [1], {**HEAD, "workers": 8})
    with (tmp_path / "steps.0.jsonl").open("a") as file:
        file.write('[1]\n{"step": 3}\nnonsense\n')
    (tmp_path / "run.json").write_text('{"workers": 3, "comm')
    run = read_run(tmp_path)
    text = "\n".join(run.problems)
    assert "run.json cannot be read" in text
    assert "steps.7.jsonl belongs to another run: this one has 8 workers" not in text
    (tmp_path / "run.json").write_text('{"workers": 3}')
    run = read_run(tmp_path)
    assert run.problems == [
        "steps.7.jsonl belongs to another run: this one has 3 workers; it is ignored.",
        "Worker 2 has no file: copy the steps.N.jsonl of other machines into this folder.",
        "steps.0.jsonl has 3 lines that cannot be read.",
        "Worker 1 stopped recording before its first step: it was killed, failed, or is still "
        "running.",
    ]
