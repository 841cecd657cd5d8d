"""The tables of bench/README.md are written from the figures of the last runs."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WHERE = {
    "date": "2024-01-02",
    "command": "python bench/x.py",
    "machine": {"cpu": "a processor", "cores": 4},
    "python": "3.11.1",
    "torch": "2.4.0",
}
ROW = {
    "what": "steps/s",
    "ours_name": "fleetx",
    "ours": 1234.5,
    "peer_name": "PyTorch",
    "peer": 1000.0,
    "goal": 1.2,
    "higher_is_better": True,
}


@pytest.fixture(scope="module")
def report():
    spec = importlib.util.spec_from_file_location("report", ROOT / "bench" / "report.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def render(report, folder, name, figures):
    if figures is not None:
        (folder / f"{name}.json").write_text(json.dumps(figures))
    text = f"# Title\n<!-- figures: {name} -->\nold\n<!-- end of figures -->\nrest\n"
    new = report.render(text, lambda name: folder / f"{name}.json")
    assert report.render(new, lambda name: folder / f"{name}.json") == new
    assert new.startswith("# Title\n")
    assert new.endswith("\nrest\n")
    assert "old" not in new
    return new


def test_a_contest_shows_ratios_and_missed_goals(report, tmp_path):
    rows = [{**ROW, "ratio": 1.25}, {**ROW, "ratio": 1.1}]
    text = render(report, tmp_path, "static_graph", {**WHERE, "rows": rows})
    assert "| steps/s | fleetx: 1234 | PyTorch: 1000 | 1.25x | at least 1.2x |" in text
    assert "| 1.10x | at least 1.2x, missed |" in text
    assert (
        "`python bench/x.py`, 2024-01-02, a processor, 4 cores, Python 3.11.1, PyTorch 2.4.0."
        in text
    )


def test_parts_tell_how_busy_the_machine_was(report, tmp_path):
    parts = {"mlp": {"date": "2024-01-02", "load": 0.25}, "bert": {"date": "2024-01-03", "load": 9}}
    text = render(report, tmp_path, "collective", {**WHERE, "rows": [], "parts": parts})
    assert "when each began: mlp 2024-01-02 at 0.25, bert 2024-01-03 at 9." in text


def test_what_a_run_has_not_noted_is_not_made_up(report, tmp_path):
    figures = {"machine": {"cpu": "a processor", "cores": 4}, "rows": []}
    text = render(report, tmp_path, "static_graph", figures)
    assert "a processor, 4 cores; not noted: command, date, python, torch." in text


def test_differences_stand_in_a_column_per_engine(report, tmp_path):
    row = {"proof": "test_runs", "what": "losses", "limit": 1e-5, "case": "adam", "cases": 3}
    op = {**row, "proof": "test_ops", "engine": "Paddle 1.8.5"}
    figures = [
        {**op, "what": "losses", "difference": 2e-7},
        {**op, "what": "abs", "difference": 1e-7, "limit": 1e-7},
        {**row, "engine": "Paddle 1.8.5", "difference": 1.23e-7},
        {**row, "engine": "Paddle 2.6.2", "difference": 2e-6},
        {**row, "what": "other", "engine": "Paddle 2.6.2", "difference": 0.0},
    ]
    text = render(report, tmp_path, "interop", figures)
    assert "| losses | 1.2e-07 (3) | 2.0e-06 (3) | 1e-05 |" in text
    assert "| other |  | 0.0e+00 (3) | 1e-05 |" in text
    assert "| single ops, nearest to the limit | 1.0e-07 (6) |  | 1e-07 |" in text


def test_times_stand_beside_their_goals(report, tmp_path):
    row = {"median_s": 1.0, "min_s": 0.5, "max_s": 2.0}
    times = {"free": row, "kept": {**row, "goal_s": 1.5}, "late": {**row, "goal_s": 0.75}}
    text = render(report, tmp_path, "launch", {**WHERE, "times": times})
    assert "| free | 1.00 | 0.50 | 2.00 |  |" in text
    assert "| kept | 1.00 | 0.50 | 2.00 | at most 1.50 |" in text
    assert "| late | 1.00 | 0.50 | 2.00 | at most 0.75, missed |" in text


def test_what_was_not_measured_is_said(report, tmp_path):
    assert "Not measured yet." in render(report, tmp_path, "launch", None)


def test_unknown_figures_are_refused(report, tmp_path):
    with pytest.raises(ValueError, match="'weather'"):
        render(report, tmp_path, "weather", {})


def test_every_place_in_the_page_has_a_table(report):
    texts = [page.read_text() for page in report.PAGES]
    names = [match.group(2) for text in texts for match in report.BLOCK.finditer(text)]
    assert sorted(names) == sorted(report.RENDERERS)


def test_local_sgd_shows_ways_and_goals(report, tmp_path):
    row = {
        "name": "localsgd, k = 16",
        "samples_per_second": 12345.6,
        "accuracy": 90.125,
        "accuracies": [90.0, 90.25],
        "kb_per_step": 29.44,
    }
    goal = {"what": "times k = 1", "value": 3.9, "goal": 4.0, "at_least": True, "reached": False}
    figures = {**WHERE, "rows": [row], "goals": [goal]}
    text = render(report, tmp_path, "local_sgd", figures)
    assert "| localsgd, k = 16 | 12346 | 90.12 | 90.00 to 90.25 | 29.4 |" in text
    assert "| times k = 1 | 3.90 | at least 4, missed |" in text


def test_compression_shows_ways_and_goals(report, tmp_path):
    row = {
        "name": "powersgd",
        "settings": "rank 2, from step 100",
        "steps_per_second": 9.876,
        "kb_per_step": 43.21,
        "accuracies": [90.0, 90.25],
        "accuracy": 90.125,
    }
    peer = {**row, "name": "torch's hook", "accuracies": [], "accuracy": None}
    goal = {"what": "points lost", "value": 0.4, "goal": 0.3, "at_least": False, "reached": False}
    figures = {**WHERE, "rows": [row, peer], "goals": [goal]}
    text = render(report, tmp_path, "dgc", figures)
    assert "| powersgd | rank 2, from step 100 | 9.88 | 43.2 | 90.12 | 90.00 to 90.25 |" in text
    assert "| torch's hook | rank 2, from step 100 | 9.88 | 43.2 |  |  |" in text
    assert "| points lost | 0.40 | at most 0.3, missed |" in text


def test_checkpoints_are_related_to_both_blocking_saves(report, tmp_path):
    names = {"FleetX, blocking": 4.0, "FleetX, in the background": 0.1, "torch.save": 1.0}
    methods = {name: {"wait": wait, "first_wait": 2, "whole": 3} for name, wait in names.items()}
    figures = {**WHERE, "methods": methods, "load_average": [0.5, 2], "first_unprepared": 5}
    text = render(report, tmp_path, "checkpoint", figures)
    assert "| FleetX, in the background | 0.100 | 2.000 | 3.000 | 2.5% | 10.0% |" in text
    assert "Load of the machine before and after: 0.5 and 2." in text
