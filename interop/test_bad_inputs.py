"""What layers refuse: wrong types, shapes and indices are errors of one class on both engines."""

from __future__ import annotations

import json
from pathlib import Path

import op_report as report
import pytest
from engines import Engine, ours

ATTEMPTS = 10  # processes that a Paddle may end with a signal
# Expressions that end differently, by reason.
_MEMORY = "reads or writes past the end, and goes on"
_LATER = "is allowed in 2.x, by the same op"
_CONVERTS = "stops where FleetX converts to the wider type, as NumPy does"
_MESSAGE = "fails by chance in Python code, with another class"
DIFFERS = {
    "layers.gather(f, layers.assign(np.array([5])))": _MEMORY,
    "layers.gather(f, layers.assign(np.array([-1])))": _MEMORY,
    "layers.scatter(f, layers.assign(np.array([0, 9])), "
    'layers.fill_constant([2, 4], "float32", 1))': _MEMORY,
    'layers.scatter_nd(layers.assign(np.array([[9]])), layers.ones([1], "float32"), [3])': _MEMORY,
    "layers.scatter_nd_add(f, layers.assign(np.array([[9]])), "
    'layers.fill_constant([1, 4], "float32", 1))': _MEMORY,
    'layers.pad2d(n, [9, 9, 9, 9], mode="reflect")': _MEMORY,
    "layers.shuffle_channel(n, 2)": _MEMORY,
    "layers.stack([f, d])": _CONVERTS,
    "layers.elementwise_add(f, d)": _CONVERTS,
    "layers.elementwise_pow(f, i)": _CONVERTS,
    "layers.squeeze(f, [0])": _LATER,
    "layers.unique(f)": _LATER,
    'layers.fc(f, "text")': _MESSAGE,
    "layers.layer_norm(f, begin_norm_axis=5)": _MESSAGE,
}


def results(engine: Engine, path: Path) -> dict[str, tuple[str, str]]:
    """Return how each expression ends: classes of the exception and the end of its message."""
    for _ in range(ATTEMPTS):
        try:
            engine.run("bad_inputs.py", path)
            break
        except AssertionError:
            last = json.loads(path.read_text().splitlines()[-1])
            if last[1] != "started":
                raise  # not a crash within an expression
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {
        text: ("Error" if kinds == "started" else kinds, message) for text, kinds, message in rows
    }


def test_bad_inputs_are_refused_alike(paddle: Engine, tmp_path: Path) -> None:
    if paddle.api != "fluid":
        pytest.skip("the layers are those of Paddle 1.8.5")
    here, there = results(ours("fluid"), tmp_path / "ours"), results(paddle, tmp_path / "real")
    assert here.keys() == there.keys()
    assert len(there) > 350
    wrong = []
    for expression, (wanted, message) in there.items():
        kinds = here[expression][0]
        agrees = kinds != "none" if wanted == "Error" else wanted in kinds.split()
        if expression in DIFFERS:
            report.listed.add(f"{expression} ({paddle.name}): {DIFFERS[expression]}")
            if agrees:
                wrong.append(f"{expression}: agrees, though it is listed")
        elif not agrees:
            wrong.append(f"{expression}: {here[expression]}, there {wanted}: {message}")
    assert not wrong, "\n".join(wrong)
