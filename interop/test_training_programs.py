"""A training program, with gradients and updates, trains as where it was saved: Paddle's here, ours
in Paddle 1.8.5."""

from pathlib import Path

import numpy as np
import pytest
from engines import Engine, ours
from scripts.training_inputs import STEPS, batch

from conftest import Comparison
from fleetx.static import CPUPlace, Executor, Scope, global_scope, io, scope_guard
from fleetx.static.protobuf.serialize import program_from_bytes


@pytest.mark.parametrize("kind", ["sgd", "momentum", "adam"])
def test_same_losses(paddle: Engine, compare: Comparison, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "saved"
    paddle.run("train_program.py", kind, folder)
    loss, parameter = (folder / "names").read_text().split()
    program = program_from_bytes((folder / "program").read_bytes(), source="program")
    executor = Executor(CPUPlace())
    with scope_guard(Scope()):
        io.load_persistables(executor, folder, program, filename="state")
        found = [executor.run(program, feed=batch(i), fetch_list=[loss])[0] for i in range(STEPS)]
        value = global_scope().find_var(parameter).get_tensor().numpy()
    with np.load(folder / "result.npz") as wanted:
        assert not np.allclose(wanted["before"], wanted["parameter"], atol=1e-3)
        losses = np.array(found).reshape(-1)
        compare.check(f"{kind}: losses of Paddle's program here", losses, wanted["losses"])
        compare.check(f"{kind}: a parameter after {STEPS} steps", value, wanted["parameter"])


@pytest.mark.parametrize("kind", ["sgd", "momentum", "adam", "sgd sparse", "adam sparse"])
def test_our_programs_in_paddle(
    paddle: Engine, compare: Comparison, tmp_path: Path, kind: str
) -> None:
    if paddle.api != "fluid":
        pytest.skip("2.6.2 has no kernels for some ops of 1.x in a program")
    folder, found = tmp_path / "saved", tmp_path / "found.npz"
    optimizer, *more = kind.split()
    ours("fluid").run("train_program.py", optimizer, folder, *more)
    paddle.run("train_saved.py", folder, found)
    with np.load(folder / "result.npz") as wanted, np.load(found) as there:
        assert not np.allclose(wanted["before"], wanted["parameter"], atol=1e-3)
        name = f"{kind}: our program in Paddle"
        compare.check(f"{name}, losses", there["losses"], wanted["losses"])
        compare.check(f"{name}, a parameter", there["parameter"], wanted["parameter"])
