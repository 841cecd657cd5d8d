"""The programs of the collective guide: alone, with two workers, LocalSGD by hand, its tables."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from seed_programs import COST, EXAMPLES, ROOT, results, run, saved, workers
from tiny_imagenet import write_imagenet

pytestmark = pytest.mark.slow  # starts jobs or servers

FOLDER = EXAMPLES / "000_collective_guide"
WEIGHTS = {f"fc_{i}.{kind}_0" for i in range(3) for kind in "wb"}


def test_program_of_one_worker_goes_on_from_its_files(tmp_path):
    (tmp_path / "m").mkdir()
    printed = run(tmp_path, "python", FOLDER / "train.py", "--steps", 3, "--model", "m")
    costs = re.findall(r"^step(\d) cost = (\d\.\d{6})$", printed, re.MULTILINE)
    assert [int(step) for step, _ in costs] == [0, 1, 2]
    assert "var:" not in printed
    assert set(saved(tmp_path / "m")) == {*WEIGHTS, "learning_rate_0"}
    printed = run(tmp_path, "python", FOLDER / "train.py", "--steps", 1, "--model", "m")
    assert set(re.findall(r"^var: (\S+) found$", printed, re.MULTILINE)) >= WEIGHTS


class TestFourSteps:
    """The conversion of a local script in 1.x."""

    def test_workers_print_their_costs_and_save_a_folder_each(self, tmp_path):
        (tmp_path / "m").mkdir()
        arguments = ("--mode", "nccl2", "--steps", "30", "--model", "m", "--save", "own")
        printed = workers(tmp_path, FOLDER / "train_fleet.py", *arguments)
        for rank, text in enumerate(printed):
            found = COST.findall(text)
            assert [(int(r), int(step)) for r, step, _ in found] == [(rank, i) for i in range(30)]
        assert printed[0] != printed[1].replace("worker_index: 1", "worker_index: 0")
        assert saved(tmp_path / "m" / "0") == saved(tmp_path / "m" / "1")

    def test_one_folder_holds_one_whole_copy_that_training_goes_on_from(self, tmp_path):
        (tmp_path / "m").mkdir()
        script, arguments = FOLDER / "train_fleet.py", ("--mode", "collective", "--model", "m")
        printed, _ = workers(tmp_path, script, *arguments, "--steps", "300", "--save", "all")
        costs = [float(cost) for _, _, cost in COST.findall(printed)]
        by_all = saved(tmp_path / "m")
        assert set(by_all) == {*WEIGHTS, "learning_rate_0"}
        # Saved by worker 0 now, and in mixed precision.
        more = ("--steps", "1", "--save", "first", "--fp16")
        printed, _ = workers(tmp_path, script, *arguments, *more)
        assert "var: fc_0.w_0 found" in printed
        again = float(COST.findall(printed)[-1][2])
        # The same first batch, with the parameters of 300 steps later.
        assert len(costs) == 300
        assert again < costs[0]
        by_first = saved(tmp_path / "m")
        scaling = {"loss_scaling_0", "num_good_steps_0", "num_bad_steps_0"}
        assert set(by_first) == set(by_all) | scaling
        assert by_first["fc_0.w_0"] != by_all["fc_0.w_0"]


class TestLocalSGD:
    """Programs that are switched step by step, and a collective program of their own."""

    @pytest.mark.parametrize("adaptive", [False, True])
    def test_workers_agree_after_each_common_step_only(self, adaptive, tmp_path):
        arguments = ["--out", "out", *["--adaptive"][: int(adaptive)]]
        printed = workers(tmp_path, FOLDER / "local_sgd.py", *arguments)
        assert all(len(COST.findall(text)) == 12 for text in printed)
        first, second = results(tmp_path)
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
        workers(tmp_path, ROOT / "tests" / "seeds" / "equal_local_sgd.py", options)
        written = json.loads((tmp_path / "out").read_text())
        assert set(written["True"]) == {"fc_0.w_0", "fc_0.b_0"}
        for name, value in written["False"].items():
            np.testing.assert_allclose(written["True"][name], value, rtol=1e-12, err_msg=name)


def test_every_row_of_the_tables(tmp_path):
    first, second = workers(tmp_path, FOLDER / "api.py", tmp_path / "saved")
    assert "fleet.worker_num(): 2" in first
    assert "fleet.worker_index(): 1" in second
    assert len(re.findall(r"127\.0\.0\.1:\d+", first)) == 2
    assert "updates of 6 parameters" in first
    assert set(saved(tmp_path / "saved" / "parameters")) == {*WEIGHTS, "learning_rate_0"}
    assert {"__model__", *WEIGHTS} == set(saved(tmp_path / "saved" / "inference"))
    for text in workers(tmp_path, FOLDER / "options.py"):
        rows = re.findall(r"^(\S+): (\d\.\d{4}) -> (\d\.\d{4})$", text, re.MULTILINE)
        assert len(rows) == 7, text
        assert all(float(last) < float(begin) for _, begin, last in rows), rows


def test_evaluation_gives_a_vector_per_picture(tmp_path):
    pictures = write_imagenet(tmp_path / "data", train=10)
    options = ["--model", "ResNet18", "--class_dim", 4, "--image_shape", "3,32,32"]
    options += ["--resize_short_size", 36, "--batch_size", 4, "--output", "vectors.npy"]
    printed = run(tmp_path, "sh", FOLDER / "commands" / "evaluate.sh", *options)
    assert "batch: 0" in printed
    vectors = np.load(tmp_path / "vectors.npy")
    assert vectors.shape == (10, 4)
    assert len({tuple(row) for row in vectors.round(6).tolist()}) == 10
    (pictures / "train.txt").write_text("n00000000/absent.jpeg 0\n")
    printed = run(tmp_path, "sh", FOLDER / "commands" / "evaluate.sh", *options, fails=True)
    assert "absent.jpeg" in printed


def test_help_of_the_launcher(tmp_path):
    assert "--started_port" in run(tmp_path, "sh", FOLDER / "commands" / "launch_help.sh")
