"""Trainers and the command line of training scripts: output, results and errors."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from pictures import fleetrun, results, write_folder

import fleetx as X
from fleetx import fleet, static
from fleetx.static.readers.file_datasets import QueueDataset

STEP = r"step(\d+), train_loss: \d+\.\d{6}, total time cost = \d+\.\d{6}, step per second: "
STEP += r"\d+\.\d{6}, speed: \d+\.\d{6}$"


class TestTwoWorkers:
    """One job of two workers, looked at from several sides."""

    @pytest.fixture(scope="class")
    @classmethod
    def job(cls, tmp_path_factory):
        folder = tmp_path_factory.mktemp("job")
        data = write_folder(folder / "ImageNet", train=20, val=9)
        printed = fleetrun(folder, Path(__file__).parent / "fit_pictures.py", data)
        return printed, results(folder)

    @pytest.mark.slow
    def test_fit_prints_a_line_per_step_after_the_first_ones(self, job):
        for text in job[0]:
            found = re.findall(rf"^epoch id: (\d), {STEP}", text, re.M)
            wanted = [(epoch, step) for epoch in range(2) for step in range(2, 5)]
            assert [(int(epoch), int(step)) for epoch, step in found] == wanted

    def test_val_prints_and_returns_means_over_the_workers_data(self, job):
        for text, result in zip(*job, strict=True):
            means = result["means"]
            assert f"Test Epoch 2, acc5 = {means['acc5']}, acc1 = {means['acc1']}\n" in text
            assert f"Test Result , acc1 = {means['acc1']}\n" in text
            assert result["again"] == {"acc1": means["acc1"]}
            assert means["acc5"] == 1
        # Nine images are five and four, in batches of up to three.
        sizes = ([3, 2], [3, 1])
        for size, result in zip(sizes, job[1], strict=True):
            mean = np.average(result["batches"]["acc1"], weights=size)
            np.testing.assert_allclose(result["means"]["acc1"], mean)

    def test_benchmarks_return_steps_per_second(self, job):
        assert all(speed > 0 for result in job[1] for speed in result["speeds"])


@pytest.mark.slow
def test_cpu_trainer_learns_with_parameter_servers(tmp_path):
    options = ("--server_num", "1", "--worker_num", "2")
    printed = fleetrun(tmp_path, Path(__file__).parent / "fit_on_servers.py", options=options)
    line = STEP.replace(r"train_loss: \d+\.\d{6}", r"train_loss: (\d+\.\d{6})")
    for rank, text in enumerate(printed):
        found = re.findall(rf"^worker_index: {rank}, {line}", text, re.M)
        assert [int(step) for step, _ in found] == [2, 3, 2, 3]
        assert float(found[3][1]) < float(found[1][1])


def linear_model():
    x = static.data("x", [None, 2], "float32")
    y = static.data("y", [None, 1], "float32")
    error = static.layers.square_error_cost(static.layers.fc(x, 1), y)
    loss = static.layers.mean(error)
    static.optimizer.SGD(0.1).minimize(loss)
    return SimpleNamespace(loss=loss, main_prog=static.default_main_program(), inputs=[x, y])


def batches(count):
    def read():
        for i in range(count):
            yield {"x": np.full((2, 2), i, "float32"), "y": np.zeros((2, 1), "float32")}

    return read


@pytest.fixture
def alone(fresh_fleet):
    fleet.init(is_collective=True)


@pytest.mark.usefixtures("alone")
class TestOneWorker:
    def test_cpu_trainer_prints_its_worker(self, capsys):
        X.CPUTrainer().fit(linear_model(), batches(4), epoch=1, start_step=1)
        found = re.findall(rf"^worker_index: 0, {STEP}", capsys.readouterr().out, re.M)
        assert found == ["2", "3"]

    @pytest.mark.parametrize(
        ("calc_line", "counted"),
        [
            (True, ["file: %s has 3 line", "Total lines: 3"]),
            (False, ["file: %s has 15 words", "Total words: 15"]),
        ],
    )
    def test_dataset_trainer_counts_the_files_and_prints_its_speed(
        self, calc_line, counted, tmp_path, capsys
    ):
        path = tmp_path / "part-0"
        path.write_text("2 0.5 1.5 1 3.0\n" * 3)
        model = linear_model()
        dataset = QueueDataset()
        dataset.set_use_var(model.inputs)
        dataset.set_batch_size(1)
        dataset.set_pipe_command("cat")
        dataset.set_filelist([str(path)])
        X.CPUDatasetTrainer(calc_line).fit(model, dataset, epoch=2)
        lines = capsys.readouterr().out.splitlines()
        assert lines[:2] == [counted[0].replace("%s", str(path)), counted[1]]
        speeds = [line for line in lines if line.startswith("epoch: ")]
        assert len(speeds) == 2
        assert all(
            re.fullmatch(r"epoch: \d finished, speed: \d+\.\d{6} words/s", s) for s in speeds
        )

    def test_too_few_steps_and_unknown_targets_are_refused(self):
        model = linear_model()
        trainer = X.MultiGPUTrainer()
        with pytest.raises(ValueError, match="ended before step 200"):
            trainer.quick_benchmark(model, batches(30))
        with pytest.raises(ValueError, match="start_step must be below end_step"):
            trainer.quick_benchmark(model, batches(3), start_step=3, end_step=3)
        with pytest.raises(ValueError, match="more than 21 steps, or start_step"):
            trainer.benchmark(model, batches(3), epoch=1)
        model = X.applications.Resnet50(class_dim=3, image_size=32, depth=18, width=4)
        with pytest.raises(ValueError, match=r"some of \['acc1', 'acc5'\], but is \['auc'\]"):
            trainer.val(model, batches(1), ["auc"])


def test_train_configs_come_from_the_command_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train.py"])
    assert vars(X.parse_train_configs()) == {
        "lr": 0.0001,
        "momentum": 0.9,
        "beta1": 0.9,
        "beta2": 0.997,
        "batch_size": 32,
        "epsilon": 1e-9,
        "download_config": None,
    }
    monkeypatch.setattr(sys, "argv", ["train.py", "--lr", "0.5", "--download_config", "a.yml"])
    configs = X.parse_train_configs()
    assert (configs.lr, configs.download_config) == (0.5, "a.yml")
    with pytest.raises(SystemExit):
        X.parse_train_configs(["--batch_size", "many"])
    assert "argument --batch_size: invalid int value: 'many'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, path: m.get_train_dataloader(path, use_dali=True), "use_dali=True needs"),
        (lambda m, path: m.load_imagenet_from_file(path, phase="test"), "phase must be one of"),
        (lambda m, path: m.get_val_dataloader(path), "val.txt"),
        (lambda m, path: m.get_train_dataloader(path), "label 1 is not in 0..0"),
    ],
)
def test_loaders_refuse(call, message, tmp_path):
    write_folder(tmp_path, train=3)
    (tmp_path / "val.txt").unlink()
    model = X.applications.Resnet50(class_dim=1, image_size=32, depth=18, width=4)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        call(model, tmp_path)
