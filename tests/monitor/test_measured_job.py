"""A real job of two workers, one of which has more work: the files in its log folder."""

import json
import re
import subprocess
import sys

import pytest
from monitored_jobs import CHROMIUM, WORKERS, browse, environment, fleetrun

from fleetx.monitor.run_folder import read_run

pytestmark = pytest.mark.slow  # starts jobs or servers

STEPS = 24


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """The log folder, and what was printed."""
    folder = tmp_path_factory.mktemp("job")
    done = fleetrun(
        *(folder, "--nproc_per_node", 2, "--log_dir", "log"),
        *(WORKERS / "straggler.py", STEPS, 120),
        FLEETX_TIMELINE="1",
        FLEETX_TIMELINE_STEPS="10",
        FLEETX_TENSORBOARD="1",
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "log", done.stdout


@pytest.fixture(scope="module")
def report(job):
    """The page, and what the command printed."""
    command = [sys.executable, "-m", "fleetx", "report", str(job[0])]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return job[0] / "report.html", done.stdout


def test_every_worker_writes_its_steps(job):
    for rank in (0, 1):
        lines = (job[0] / f"steps.{rank}.jsonl").read_text().splitlines()
        head, *steps, end = map(json.loads, lines)
        assert (head["kind"], head["rank"], head["workers"], end) == (
            "start",
            rank,
            2,
            {"kind": "end"},
        )
        assert [line["step"] for line in steps] == list(range(1, STEPS + 1))
        assert {line["samples"] for line in steps} == {8 + rank}
        assert all(0 <= line["wait"] <= line["seconds"] for line in steps)
        assert all(isinstance(line["loss"], float) for line in steps)


def test_report_names_the_straggler(report):
    page, printed = report
    assert printed.startswith("Worker 1 is the straggler: it is busy for ")
    assert "Worker 1 is the straggler" in page.read_text()


def test_page_stands_alone(report):
    text = report[0].read_text()
    assert not re.search(r"(src|href)=\"(?!data:)|url\(|@import|<script", text)
    assert text.count("<svg") == 6
    assert "buckets of 32 MB" in text  # the composed strategy
    assert "straggler.py" in text


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is missing: apt-get install chromium")
def test_page_in_a_browser(report, tmp_path):
    logs = ("--enable-logging=stderr", "--v=0", "--dump-dom")
    shown = browse(report[0], tmp_path, *logs)
    assert shown.returncode == 0
    assert shown.stdout.count("<polyline") == 7  # 3 curves, and 2 charts with one per worker
    assert shown.stdout.count('class="bar') == 6
    assert "CONSOLE" not in shown.stderr
    pictures = []
    for scheme in ("1", "0"):  # light, dark
        picture = tmp_path / f"{scheme}.png"
        flags = (f"--blink-settings=preferredColorScheme={scheme}", f"--screenshot={picture}")
        browse(report[0], tmp_path, *flags)
        pictures.append(picture.read_bytes())
    assert all(picture.startswith(b"\x89PNG") for picture in pictures)
    assert pictures[0] != pictures[1]


def test_event_files_hold_the_same(job):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for rank in (0, 1):
        events = EventAccumulator(str(job[0] / "tensorboard" / f"worker{rank}"))
        events.Reload()
        assert set(events.Tags()["scalars"]) == {
            *("loss", "samples_per_second", "share/communication", "share/data"),
            *("time/step_seconds", "time/busy_seconds"),
        }
        assert events.Scalars("time/step_seconds")[-1].step == STEPS
        worker = read_run(job[0]).workers[rank]
        first = events.Scalars("loss")[0]
        assert first.step == 1
        assert first.value == pytest.approx(worker.records[0].loss)


def test_timeline_has_all_workers_on_one_axis(job):
    trace = json.loads((job[0] / "timeline.json").read_text())
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    for rank in (0, 1):
        own = [span for span in spans if span["pid"] == rank]
        steps = [span for span in own if span["cat"] == "step"]
        assert [span["name"] for span in steps] == [f"step {i}" for i in range(1, 11)]
        assert {span["cat"] for span in own} == {"step", "compute", "communication", "data"}
        assert {"forward", "backward", "gradient all-reduce", "update"} <= {s["name"] for s in own}
        for span in own:
            begins, ends = span["ts"], span["ts"] + span["dur"]
            inside = [s for s in steps if s["ts"] - 1 <= begins and ends <= s["ts"] + s["dur"] + 1]
            assert len(inside) == 1, span
    clock = trace["otherData"]["clocks"]["worker 1"]
    # Both run on one machine, whose clock is the same for all processes.
    assert clock["way"] == "ping-pong"
    assert abs(clock["offset"]) <= clock["error"]
    # No worker has the sum of a step before the last one has started on its part.
    margin = clock["error"] / 1000 + 1
    for number in range(10):
        backward = [_named(spans, rank, "backward")[number] for rank in (0, 1)]
        sums = [_named(spans, rank, "gradient all-reduce")[number] for rank in (0, 1)]
        last_begin = max(span["ts"] for span in backward)
        assert last_begin <= min(span["ts"] + span["dur"] for span in sums) + margin


def _named(spans, rank, name):
    return [span for span in spans if span["pid"] == rank and span["name"] == name]


def test_progress_in_a_log_is_plain_lines(job):
    lines = re.findall(r"^\d\d:\d\d:\d\d  step .*$", job[1], re.MULTILINE)
    pattern = r"  loss \d+\.\d{4}  [\d,]+ samples/s  communication \d+%  0:00 left$"
    assert f"  step {STEPS}/{STEPS}  " in lines[-1]
    assert re.search(pattern, lines[-1])
    assert "\x1b" not in job[1]


def test_run_that_crashed_still_gives_a_page(tmp_path):
    done = fleetrun(
        *(tmp_path, "--nproc_per_node", 2, "--log_dir", "log"),
        *(WORKERS / "straggler.py", 40, 1, "localsgd"),
        DIE_AT="15",
    )
    assert done.returncode != 0
    command = [sys.executable, "-m", "fleetx", "report", "log", "--out", "page.html"]
    done = subprocess.run(command, env=environment(), cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Worker 0 stopped recording" in done.stdout
    assert "it was killed, failed, or is still running." in done.stdout
    page = (tmp_path / "page.html").read_text()
    assert "<svg" in page
    assert "localsgd" in page
    assert not (tmp_path / "log" / "timeline.json").exists()


@pytest.mark.parametrize("kind", ["eager", "static"])
def test_workers_of_parameter_servers(kind, tmp_path):
    done = fleetrun(
        *(tmp_path, "--server_num", 1, "--worker_num", 2, "--log_dir", "log"),
        *(WORKERS / "served.py", kind, 5),
        FLEETX_TIMELINE="1",
    )
    assert done.returncode == 0, done.stderr[-3000:]
    run = read_run(tmp_path / "log")
    assert run.problems == []
    for worker in run.workers:
        assert [record.step for record in worker.records] == [1, 2, 3, 4, 5]
        assert [record.samples for record in worker.records] == [6] * 5
        assert all(record.wait > 0 for record in worker.records)
        losses = [record.loss for record in worker.records]
        assert all(b < a for a, b in zip(losses, losses[1:], strict=False))
    trace = json.loads((tmp_path / "log" / "timeline.json").read_text())
    waits = [e for e in trace["traceEvents"] if e.get("cat") == "communication"]
    assert {event["pid"] for event in waits} == {0, 1}
    assert "end of the step on servers" in {event["name"] for event in waits}
