"""Parameter files, states and programs that were written here are read by real Paddle, and back."""

import json
from pathlib import Path

import numpy as np
import pytest
from engines import Engine, ours, real

from fleetx.static import CPUPlace, Executor, Program, Scope, global_scope, io, scope_guard

VALUES = {
    "float": np.linspace(-3, 3, 60, dtype="float32").reshape(3, 4, 5),
    "double": np.array([1e-300, 2.5], "float64"),
    "long": np.array([-(2**40), 7], "int64"),
    "int": np.arange(-5, 5, dtype="int32").reshape(2, 5),
    "bytes": np.arange(256, dtype="uint8"),
    "small": np.arange(-128, 128, dtype="int8"),
    "half": np.array([0.5, -2.0], "float16"),
    "flag": np.array([True, False, True]),
    "inner/name": np.ones((1,), "float32"),
}
LOD = [[0, 1, 3]]


def save_all(folder: Path, protocol: int) -> None:
    """Write the values in every form."""
    program = Program()
    for name, value in VALUES.items():
        program.global_block().create_var(
            name=name, shape=value.shape, dtype=value.dtype, persistable=True
        )
        global_scope().var(name).get_tensor().set(value)
    global_scope().var("float").get_tensor().set_lod(LOD)
    executor = Executor(CPUPlace())
    io.save(program, folder / "saved", protocol=protocol)
    io.save_persistables(executor, folder / "vars", program)
    io.save_persistables(executor, folder, program, filename="combined")
    io.save_object(VALUES, folder / "object.pd", protocol=protocol)


@pytest.mark.parametrize("protocol", [2, 4])
def test_same_values_there(paddle: Engine, tmp_path: Path, protocol: int) -> None:
    with scope_guard(Scope()):
        save_all(tmp_path, protocol)
    printed = paddle.run("read_state.py", tmp_path)
    found = json.loads(printed[printed.index("FOUND ") + 6 :])
    assert found.pop("lod:float") == LOD
    forms = ["saved", "vars", "combined"] + (["object"] if paddle.api == "static" else [])
    assert len(found) == len(forms) * len(VALUES)
    for form in forms:
        for name, value in VALUES.items():
            expected = [list(value.shape), str(value.dtype), float(value.astype("f8").sum())]
            assert found[f"{form}:{name}"] == expected, (form, name)


def figures(engine: Engine, task: str, folder: Path) -> dict:
    """Return what one of the two tasks printed."""
    printed = engine.run("serialized_states.py", task, folder)
    return json.loads(printed[printed.index("FOUND ") + 6 :])


def test_states_of_static_mode(tmp_path: Path) -> None:
    # The functions are those of 2.0: static.save, serialize_program, normalize_program, ...
    paddle = real("2.6.2")
    if paddle is None:
        pytest.skip("PADDLE262 does not name a Python with Paddle 2.6.2; use make interop")
    engines = {"here": ours("static"), "there": paddle}
    written = {}
    for place, engine in engines.items():
        (tmp_path / place).mkdir()
        written[place] = figures(engine, "write", tmp_path / place)
    here, there = written["here"], written["there"]
    assert here["normalized"] == there["normalized"]
    assert here["same"] == there["same"] == [True, True]
    assert set(here["state"]) == set(there["state"])
    for mine, theirs in zip(here["errors"], there["errors"], strict=True):
        assert set(theirs) <= set(mine)
    for reader, writer in (("here", "there"), ("there", "here")):
        read = figures(engines[reader], "read", tmp_path / writer)
        assert read["warnings"] == 1
        for form in ("load", "set"):
            np.testing.assert_allclose(read[f"after {form}"], written[writer]["after"], rtol=1e-5)
        for form in ("program", "normal"):
            wanted = written[writer]["outputs"]
            np.testing.assert_allclose(read[f"outputs of {form}"], wanted, atol=1e-6)
