"""Single ops, forward and backward, here and on real Paddle 1.8.5: outputs, offsets, gradients.

`OP_SEEDS="7 8"` draws other cases; `README.md` lists what differs on purpose.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rare_op_cases  # noqa: F401 - adds its families
from engines import Engine, ours
from op_cases import OpCase, cases

from conftest import Comparison

SEEDS = [int(word) for word in os.environ.get("OP_SEEDS", "0 1").split()]
LIMIT = {"float32": 2e-5, "float64": 1e-6}
# Outputs that only some settings fill; memory of the others is not initialised.
UNDEFINED = {"MaxIndex", "Out2InIdx", "Out2InWeights"}
# Paddle's kernel exists for single precision only.
NO_KERNEL = (
    "does not have kernel for data_type[double]",
    "it holds double, but desires to be float",
)


def write(folder: Path, drawn: list[OpCase]) -> tuple[list[dict[str, Any]], Path]:
    """Write the arrays and return the cases as `run_ops.py` reads them."""
    data, rows = {}, []
    for number, case in enumerate(drawn):
        inputs: dict[str, list[Any]] = {}
        for slot, value in case.inputs.items():
            inputs[slot] = []
            for i, item in enumerate(value if isinstance(value, list) else [value]):
                array, lengths = item if isinstance(item, tuple) else (item, None)
                key = f"{number}.{slot}.{i}"
                data[key] = np.asarray(array)
                inputs[slot].append([f"{slot}_{i}", key, lengths])
        outputs = {slot: case.counts.get(slot, 1) for slot in case.outputs.split()}
        compared = [slot for slot in outputs if slot not in {"XShape", *UNDEFINED}]
        rows.append(
            {
                "name": f"{number:04d}_{case.type}",
                "type": case.type,
                "inputs": inputs,
                "attrs": case.attrs,
                "outputs": outputs,
                "compared": compared,
                "grads": case.grads.split(),
                "losses": case.losses.split() or compared,
            }
        )
    np.savez(folder / "data.npz", **data)
    return rows, folder / "data.npz"


def run(engine: Engine, rows: list[dict[str, Any]], data: Path, found: Path) -> dict[str, Any]:
    """Run the cases; one that ends the process is noted, and the others go on."""
    notes: dict[str, Any] = {}
    left = rows
    while left:
        listed = found.with_suffix(".cases")
        listed.write_text(json.dumps(left))
        log = Path(f"{found}.json")
        log.write_text("")
        failure = ""
        try:
            engine.run("run_ops.py", listed, data, found)
        except AssertionError as error:
            failure = str(error)
        started = None
        for line in log.read_text().splitlines():
            note = json.loads(line)
            started = note["case"] if note.get("started") else None
            if started is None:
                notes[note["case"]] = note
        if started is None:
            assert not failure, failure
            break
        notes[started] = {"failed": failure, "lod": {}}
        names = [row["name"] for row in left]
        left = left[names.index(started) + 1 :]
    return notes


def arrays(found: Path, name: str) -> dict[str, np.ndarray]:
    path = Path(f"{found}.{name}.npz")
    return dict(np.load(path)) if path.exists() else {}


@pytest.mark.parametrize("seed", SEEDS)
def test_ops_agree(seed: int, paddle: Engine, compare: Comparison, tmp_path: Path) -> None:
    if paddle.api != "fluid":
        pytest.skip("the cases are written for the ops of Paddle 1.8.5")
    print(f"seed {seed}: OP_SEEDS={seed} repeats it")
    rows, data = write(tmp_path, cases(seed))
    here, there = tmp_path / "ours", tmp_path / "real"
    mine, theirs = run(ours("fluid"), rows, data, here), run(paddle, rows, data, there)
    wrong, compared = [], 0
    for row in rows:
        name = row["name"]
        if any(text in theirs[name].get("failed", "") for text in NO_KERNEL):
            continue
        if "failed" in theirs[name]:
            wrong.append(f"{name} {row['attrs']}: Paddle fails: {theirs[name]['failed'][-300:]}")
            continue
        compared += 1
        if "failed" in mine[name] or "grad_failed" in mine[name]:
            wrong.append(f"{name} {row['attrs']}: {mine[name]}")
            continue
        found, wanted = arrays(here, name), arrays(there, name)
        for key, value in wanted.items():
            try:
                assert key in found, f"{key} is missing"
                if value.size:
                    limit = LIMIT["float64" if seed % 2 else "float32"]
                    compare.check(row["type"], found[key], value, limit, case=name)
            except AssertionError as error:
                wrong.append(f"{name} {row['attrs']} {key}: {error}")
        for key, lod in theirs[name]["lod"].items():
            if mine[name]["lod"].get(key) != lod:
                wrong.append(f"{name}: lengths {mine[name]['lod'].get(key)}, there {lod}")
    assert not wrong, "\n".join(wrong)
    assert compared > 250
