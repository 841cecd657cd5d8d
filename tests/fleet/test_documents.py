"""The collective programs of Fleet's documents, 1.x and 2.x, run with two workers and print the
documents' lines.

Programs are the project's own, with the calls of the documents; where the documents themselves lie
beside the project, their text is run as well.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "documents"
QUICK_START = ROOT / "examples" / "quick_start" / "collective_train.py"
SEEDS = ROOT.parent / "shared" / "seeds"
COST = re.compile(r"^worker_index: (\d), step(\d+) cost = (\d+\.\d+)$", re.MULTILINE)
EPOCH = re.compile(
    r"^\[Epoch (\d+), batch (\d+)\] loss: \d+\.\d{5}, acc1: \d\.\d{5}, acc5: \d\.\d{5}$",
    re.MULTILINE,
)


def launch(folder: Path, script: Path, *arguments: str) -> list[str]:
    """Run a script with two workers under fleetrun; return what each of them printed."""
    command = [sys.executable, "-m", "fleetx.launch", "--nproc_per_node", "2"]
    command += ["--log_dir", str(folder / "log"), str(script), *arguments]
    path = f"{ROOT / 'src'}:{ROOT / 'compat'}"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [(folder / "log" / f"workerlog.{rank}").read_text() for rank in range(2)]


def read_results(folder: Path) -> list[dict]:
    return [json.loads((folder / f"out.{rank}").read_text()) for rank in range(2)]


def saved(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class TestFourSteps:
    """The conversion of a local script in 1.x."""

    def test_workers_print_their_costs_and_save_a_folder_each(self, tmp_path):
        arguments = ("--mode", "nccl2", "--steps", "30", "--model", "m", "--save", "own")
        printed = launch(tmp_path, QUICK_START, *arguments)
        for rank, text in enumerate(printed):
            found = COST.findall(text)
            assert [(int(r), int(step)) for r, step, _ in found] == [(rank, i) for i in range(30)]
        assert printed[0] != printed[1].replace("worker_index: 1", "worker_index: 0")
        assert saved(tmp_path / "m" / "0") == saved(tmp_path / "m" / "1")

    def test_one_folder_holds_one_whole_copy_that_training_goes_on_from(self, tmp_path):
        arguments = ("--mode", "collective", "--model", "m")
        printed, _ = launch(tmp_path, QUICK_START, *arguments, "--steps", "60", "--save", "all")
        costs = [float(cost) for _, _, cost in COST.findall(printed)]
        by_all = saved(tmp_path / "m")
        weights = {f"fc_{i}.{kind}_0" for i in range(3) for kind in "wb"}
        assert set(by_all) == {*weights, "learning_rate_0"}
        printed, _ = launch(tmp_path, QUICK_START, *arguments, "--steps", "1", "--save", "first")
        again = float(COST.findall(printed)[-1][2])
        # The same first batch, with the parameters of 60 steps later.
        assert len(costs) == 60
        assert again < costs[0]
        by_first = saved(tmp_path / "m")
        assert set(by_first) == set(by_all)
        assert by_first != by_all


class TestLocalSGD:
    """Programs that are switched step by step, and a collective program of their own."""

    @pytest.mark.parametrize("adaptive", [False, True])
    def test_workers_agree_after_each_common_step_only(self, adaptive, tmp_path):
        options = json.dumps({"adaptive": adaptive, "out": str(tmp_path / "out")})
        printed = launch(tmp_path, PROGRAMS / "local_sgd.py", options)
        assert all(len(COST.findall(text)) == 12 for text in printed)
        first, second = read_results(tmp_path)
        assert "c_allreduce_sum" in first["main"]
        assert first["intervals"] == second["intervals"]
        if not adaptive:
            assert first["intervals"] == [1, 1, 2]
        for (is_common, one), (_, other) in zip(first["steps"], second["steps"], strict=True):
            assert (one == other) == is_common
        for (a, mean), (b, same) in zip(first["mean_losses"], second["mean_losses"], strict=True):
            assert mean == same == pytest.approx((a + b) / 2)

    def test_averaging_at_every_step_equals_all_reduce(self, tmp_path):
        options = json.dumps({"out": str(tmp_path / "out")})
        launch(tmp_path, PROGRAMS / "equal_local_sgd.py", options)
        written = json.loads((tmp_path / "out").read_text())
        assert set(written["True"]) == {"fc_0.w_0", "fc_0.b_0"}
        for name, value in written["False"].items():
            np.testing.assert_allclose(written["True"][name], value, rtol=1e-12, err_msg=name)


def test_residual_network_of_2_x_prints_its_lines(tmp_path):
    script = ROOT / "examples" / "resnet" / "train_fleet_static.py"
    printed = launch(tmp_path, script, "--epochs", "2", "--pictures", "64")
    for text in printed:
        assert EPOCH.findall(text) == [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")]
    assert "Find all_reduce operators: 62." in printed[0]


def python_block(document: str, mark: str) -> str:
    """Return the first block of Python in a document that contains a mark, without indentation."""
    (path,) = SEEDS.glob(f"{document}_*")
    text = path.read_text()
    fenced = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    indented = re.findall(r"\.\. code-block:: py\n\n((?:[ ]{3}.*\n|\s*\n)+)", text)
    blocks = [*fenced, *map(textwrap.dedent, indented)]
    return next(block for block in blocks if mark in block)


@pytest.mark.skipif(not SEEDS.is_dir(), reason="the documents are not beside the project")
class TestTextOfTheDocuments:
    """The programs as the documents print them."""

    def test_four_steps(self, tmp_path):
        text = python_block("000", "# Step 1: Import")
        assert "startup_program()" in text  # a slip: it is a program, not a function
        text = text.replace("exe.run(startup_program())", "exe.run(startup_program)")
        (tmp_path / "train.py").write_text(text)
        (tmp_path / "pretrained_model").mkdir()
        printed = launch(tmp_path, tmp_path / "train.py")
        for text in printed:
            assert len(COST.findall(text)) == 1001
        assert "fc_0.w_0" in saved(tmp_path / "pretrained_model")

    def test_residual_network(self, tmp_path):
        # What the document leaves to its complete example: few and narrow, but 50 layers.
        around = f"""
        import os, sys
        sys.path.insert(0, {str(ROOT / "examples" / "resnet")!r})
        import functools, types
        import numpy as np
        import resnet
        resnet.ResNet = functools.partial(resnet.ResNet, width=4)
        class_dim = 10
        def get_train_loader(feed_list, place):
            def batches():
                yield np.ones((2, 3, 224, 224), "float32"), np.array([[1], [2]])
            loader = paddle.io.DataLoader.from_generator(feed_list=feed_list, capacity=2)
            loader.set_batch_generator(batches, places=place)
            return loader
        def optimizer_setting():
            return paddle.optimizer.Momentum(learning_rate=0.01, momentum=0.9)
        """
        text = python_block("001", "from paddle.distributed import fleet\n\ndef")
        script = tmp_path / "train_fleet_static.py"
        script.write_text(textwrap.dedent(around) + text + "\ntrain_resnet()\n")
        printed = launch(tmp_path, script)
        for text in printed:
            assert EPOCH.findall(text) == [(str(i), "0") for i in range(10)]
        assert "Find all_reduce operators: 161." in printed[0]
