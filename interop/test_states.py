"""Parameter files, states and tensors that were written here are read by real Paddle."""

import json
from pathlib import Path

import numpy as np
import pytest
from engines import Engine

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
