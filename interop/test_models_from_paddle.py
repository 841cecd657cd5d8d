"""Models that real Paddle saved give the same outputs here, and in Paddle again once saved here."""

from pathlib import Path

import numpy as np
import pytest
from engines import Engine
from scripts.inputs import NAMES, inputs

from conftest import Comparison
from fleetx.static import CPUPlace, Executor, Scope, io, scope_guard


@pytest.fixture(scope="module")
def saved(paddle: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which Paddle saved the models."""
    folder = tmp_path_factory.mktemp("saved")
    paddle.run("save_models.py", folder)
    return folder


def arrays(path: Path) -> list[np.ndarray]:
    """Return the outputs in a file."""
    with np.load(path) as stored:
        return [stored[name] for name in stored.files]


def load(engine: Engine, folder: Path, executor: Executor) -> list:
    """Load a model with the function for the form in which this Paddle saves."""
    if engine.api == "fluid":
        return io.load_inference_dir(folder, executor)
    return io.load_inference_model(str(folder / "model"), executor)


@pytest.mark.parametrize("name", NAMES)
def test_same_outputs_here(paddle: Engine, compare: Comparison, saved: Path, name: str) -> None:
    executor = Executor(CPUPlace())
    with scope_guard(Scope()):
        program, feeds, targets = load(paddle, saved / name, executor)
        assert feeds == list(inputs(name))
        found = executor.run(program, feed=inputs(name), fetch_list=targets)
    for wanted, array in zip(arrays(saved / name / "outputs.npz"), found, strict=True):
        compare.check(f"{name}: saved by Paddle, run here", np.asarray(array), wanted)


def test_same_outputs_after_saving_again(
    paddle: Engine, compare: Comparison, saved: Path, tmp_path: Path
) -> None:
    executor = Executor(CPUPlace())
    for name in NAMES:
        with scope_guard(Scope()):
            program, feeds, targets = load(paddle, saved / name, executor)
            folder = tmp_path / "again" / name
            if paddle.api == "fluid":
                io.save_inference_dir(folder, feeds, targets, executor, program)
            else:
                fed = [program.global_block().var(feed) for feed in feeds]
                io.save_inference_model(folder / "model", fed, targets, executor, program=program)
    paddle.run("run_models.py", tmp_path / "again", tmp_path)
    for name in NAMES:
        for wanted, array in zip(
            arrays(saved / name / "outputs.npz"), arrays(tmp_path / f"{name}.npz"), strict=True
        ):
            compare.check(f"{name}: saved again here, run by Paddle", array, wanted)
