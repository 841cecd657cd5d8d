"""The content of the report: verdicts, curves, charts; damaged timelines."""

import json
import math
import xml.etree.ElementTree as ET

import pytest

from fleetx.cli import main
from fleetx.monitor import trace
from fleetx.monitor.analysis import Bins, WorkerSummary, straggler, summarise
from fleetx.monitor.chart import Series, bars, line_chart, number, ticks
from fleetx.monitor.record import StepRecord
from fleetx.monitor.report import page
from fleetx.monitor.run_folder import RunFolder, WorkerSteps


def worker(rank, busy=0.1, wait=0.0, data=0.0, host="a", steps=20, loss=1.0):
    records = [
        StepRecord(i, 1, 10.0 * i, busy + wait, data, wait, 8, loss) for i in range(1, steps + 1)
    ]
    return WorkerSteps(rank, records, host, 2, 1, True)


def verdict(*workers):
    return straggler([summarise(each) for each in workers])


class TestVerdict:
    def test_equal_workers(self):
        who, text = verdict(worker(0), worker(1, 0.102))
        assert who is None
        assert text.startswith("No worker is a straggler: the busiest, worker 1, is busy")

    def test_slow_worker_by_busy_time_though_all_take_equally_long(self):
        who, text = verdict(worker(0, 0.1, 0.2), worker(1, 0.1, 0.2), worker(2, 0.3, 0.0, host="b"))
        assert who == 2
        assert "busy for 300 ms per step, the others for 100 ms" in text
        assert "computes longer on b" in text

    def test_slow_data_is_named(self):
        who, text = verdict(worker(0, 0.1, 0.2), worker(1, 0.3, 0.0, data=0.25))
        assert who == 1
        assert text.endswith("Most of the difference is waiting for data.")

    def test_nobody_to_compare_with(self):
        assert verdict(worker(0)) == (None, "There is only one worker.")
        assert straggler([]) == (None, "No worker completed a step.")


def test_curves_of_many_steps_have_few_points():
    bins = Bins([worker(0, steps=1000), worker(1, steps=990, loss=3.0)], points=100)
    assert bins.width == 10
    loss = bins.loss()
    assert len(loss) == 100
    assert loss[0] == (10.0, 2.0)
    assert loss[-1] == (1000.0, 1.0)
    assert bins.throughput()[0][1] == pytest.approx(160)
    assert bins.communication()[0][1] == 0
    assert bins.busy(1)[-1] == (990.0, pytest.approx(100))


def test_shares():
    found = summarise(worker(0, 0.3, 0.1, data=0.2))
    assert isinstance(found, WorkerSummary)
    assert found.communication_share == pytest.approx(0.25)
    assert found.data_share == pytest.approx(0.5)
    assert found.compute == pytest.approx(0.1)


class TestCharts:
    @pytest.mark.parametrize(
        ("low", "high"), [(0, 1), (0.001, 0.002), (-5, 3), (3, 3), (0, 0), (1e6, 9e6)]
    )
    def test_ticks_are_round_and_cover(self, low, high):
        found = ticks(low, high)
        assert found[0] <= low
        assert found[-1] >= high
        assert 2 <= len(found) <= 9

    @pytest.mark.parametrize("points", [[(1, 2.0)], [(1, 2.0), (2, math.nan), (3, 1.0)], []])
    def test_any_points_make_a_picture(self, points):
        text = line_chart([Series("a <b>", points)], label="x & y")
        assert "nan" not in text.replace("nan</title>", "").replace("nan\n", "") or not points
        ET.fromstring(f"<p>{text}</p>")

    def test_values_far_above_are_cropped(self):
        points = [(float(i), 500.0 if i == 1 else 10.0) for i in range(1, 60)]
        assert ">500<" not in line_chart([Series("", points)], label="x", crops=True)
        assert ">500<" in line_chart([Series("", points)], label="x")

    def test_bars(self):
        root = ET.fromstring(bars([("a", [1, 2]), ("b", [0, 0])], ["x", "y"], label="z"))
        widths = [float(r.get("width")) for r in root.iter("rect")]
        assert widths[1] == pytest.approx(2 * widths[0], abs=0.2)
        assert bars([], [], label="z").startswith("<p")

    @pytest.mark.parametrize(
        ("value", "text"), [(0, "0"), (1234.5, "1,234.5"), (0.25, "0.25"), (1e-5, "1e-05")]
    )
    def test_numbers(self, value, text):
        assert number(value) == text


class TestPage:
    def test_names_are_escaped_and_nothing_is_taken_for_granted(self, tmp_path):
        facts = {"command": ["<script>.py"], "strategy": [{"stage": "<x>"}, 3], "workers": "two"}
        text = page(RunFolder(tmp_path, facts, [worker(0), worker(1)], ["a <b> problem"]))
        assert "<script" not in text
        assert "a &lt;b&gt; problem" in text
        empty = page(RunFolder(tmp_path, {}, [WorkerSteps(0)], []))
        assert "no steps were recorded" in empty
        assert "strategy of this run was not recorded" in empty

    def test_loss_that_is_no_number(self, tmp_path):
        text = page(RunFolder(tmp_path, {}, [worker(0, loss=math.nan)], []))
        assert "The loss is not a number at step 1" in text

    def test_commands_say_what_is_missing(self, tmp_path, capsys):
        assert main(["report", str(tmp_path)]) == 1
        assert "there is no steps.N.jsonl" in capsys.readouterr().err
        assert main(["timeline", str(tmp_path)]) == 1
        assert "FLEETX_TIMELINE=1" in capsys.readouterr().err
        assert list(tmp_path.iterdir()) == []


class TestTrace:
    def write(self, folder, rank, offset, lines):
        head = {"rank": rank, "clock": {"offset": offset, "error": 0, "way": "x"}, "host": "h"}
        text = [json.dumps(head), *map(json.dumps, lines), '["end"]']
        (folder / f"timeline.{rank}.jsonl").write_text("\n".join(text) + "\n")

    def test_clocks_are_aligned(self, tmp_path):
        self.write(tmp_path, 0, 0, [["step 1", "step", 5000, 9000]])
        self.write(tmp_path, 1, -1_000_000, [["step 1", "step", 1_007_000, 1_008_000]])
        trace.wait_for_ends(tmp_path)
        found, problems = trace.merge(tmp_path)
        assert problems == []
        spans = [e for e in found["traceEvents"] if e["ph"] == "X"]
        assert [(s["pid"], s["ts"], s["dur"]) for s in spans] == [(0, 0, 4), (1, 2, 1)]

    def test_damaged_files(self, tmp_path, capsys):
        self.write(tmp_path, 0, 0, [["step 1", "step", 5000, 9000], [1, 2], ["a", "b", "c", 4]])
        (tmp_path / "timeline.1.jsonl").write_text("nonsense\n")
        (tmp_path / "timeline.2.jsonl").write_text("")
        out = tmp_path / "t.json"
        assert main(["timeline", str(tmp_path), "--out", str(out)]) == 0
        printed = capsys.readouterr().out
        assert "timeline.0.jsonl: 2 damaged lines are ignored" in printed
        assert "timeline.1.jsonl has no head and is ignored" in printed
        assert len(json.loads(out.read_text())["traceEvents"]) == 4
        (tmp_path / "timeline.0.jsonl").unlink()
        assert main(["timeline", str(tmp_path)]) == 1
        assert not (tmp_path / "timeline.json").exists()
