"""Models that were built and saved here give the same outputs in real Paddle."""

from pathlib import Path

import numpy as np
from engines import Engine, ours
from scripts.inputs import NAMES

from conftest import Comparison


def test_same_outputs_there(paddle: Engine, compare: Comparison, tmp_path: Path) -> None:
    ours(paddle.api).run("save_models.py", tmp_path / "saved")
    paddle.run("run_models.py", tmp_path / "saved", tmp_path)
    for name in NAMES:
        with (
            np.load(tmp_path / f"{name}.npz") as found,
            np.load(tmp_path / "saved" / name / "outputs.npz") as wanted,
        ):
            for key in wanted.files:
                compare.check(f"{name}: saved here, run by Paddle", found[key], wanted[key])
