"""Ops that need others around them: small programs of arrays, loops, branches and readers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import op_coverage
import op_report as report
import pytest
from engines import Engine, ours

from conftest import Comparison

# What Paddle computes differently; README.md has the proof.
DIFFERS = {"loops.1": "a variable of while_loop that is overwritten loses part of its gradient"}


def test_small_programs_agree(paddle: Engine, compare: Comparison, tmp_path: Path) -> None:
    if paddle.api != "fluid":
        pytest.skip("the programs are written for Paddle 1.8.5")
    notes, values = [], []
    for name, engine in (("ours", ours("fluid")), ("real", paddle)):
        engine.run("op_programs.py", tmp_path / name)
        notes.append(json.loads((tmp_path / f"{name}.json").read_text()))
        values.append(dict(np.load(tmp_path / f"{name}.npz")))
    wrong = []
    for program, there in notes[1].items():
        here = notes[0][program]
        for note in (here, there):
            if "failed" in note:
                wrong.append(f"{program}: {note['failed'][-300:]}")
        if here.get("lengths") != there.get("lengths"):
            wrong.append(f"{program}: lengths {here.get('lengths')}, there {there.get('lengths')}")
    for key, wanted in values[1].items():
        if key in DIFFERS:
            report.listed.add(f"while ({paddle.name}): {DIFFERS[key]}")
            if np.allclose(values[0][key], wanted):
                wrong.append(f"{key}: agrees, though it is listed: {DIFFERS[key]}")
            continue
        try:
            compare.check(key.split(".")[0], values[0][key], wanted, case=key)
        except (AssertionError, KeyError) as error:
            wrong.append(f"{key}: {error}")
    assert not wrong, "\n".join(wrong)
    types = {name for note in notes[1].values() for name in note["types"]}
    missing = set(op_coverage.PROGRAMS.split()) - types - {"feed", "fetch"}
    assert not missing, f"op_coverage.py lists types that no program has: {missing}"
