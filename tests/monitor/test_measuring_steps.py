"""Measuring in one process: when hooks are attached, and what is recorded of each kind of step."""

import json
import sys

import numpy as np
import pytest
import torch
from torch import nn

from fleetx import fleet, monitor, static
from fleetx.fleet.strategy.agreement_card import what_was_asked
from fleetx.monitor import plain_backward
from fleetx.monitor.batch_samples import samples_in
from fleetx.monitor.recorder import Recorder
from fleetx.monitor.run_folder import read_run
from fleetx.runtime import heartbeat
from fleetx.static import layers
from fleetx.static.readers.lod_tensor import LoDTensor
from fleetx.step.stages import GradientSync, ParameterSync, Precision, Stage

pytestmark = pytest.mark.usefixtures("fresh_fleet")


class Kept:
    """A taker that keeps all records."""

    def __init__(self):
        self.records = []
        self.closed = False

    def take(self, record):
        self.records.append(record)

    def close(self):
        self.closed = True


@pytest.fixture(autouse=True)
def _nothing_asked(monkeypatch):
    for name in ("LOG_DIR", "MONITOR", "TIMELINE", "PROGRESS", "TENSORBOARD", "RUN"):
        monkeypatch.delenv(f"FLEETX_{name}", raising=False)
    yield
    monitor.stop()


def start() -> Kept:
    """Begin to measure, in memory only."""
    kept = Kept()
    monitor.start(monitor.Settings()).recorder.add(kept)
    return kept


def pair(**switches):
    """A model and an optimizer of a new session."""
    strategy = fleet.DistributedStrategy()
    for name, value in switches.items():
        setattr(strategy, name, value)
    fleet.init(is_collective=True, strategy=strategy)
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return fleet.distributed_model(model), fleet.distributed_optimizer(optimizer)


def train(model, optimizer, steps=3):
    losses = []
    for _ in range(steps):
        loss = model(torch.ones(5, 4)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def hooks_of(model, optimizer) -> int:
    """How many hooks there are on a model, on its parameters and on the update."""
    update = optimizer.inner
    found = len(model._forward_hooks) + len(model._forward_pre_hooks)
    found += len(update._optimizer_step_pre_hooks) + len(update._optimizer_step_post_hooks)
    for parameter in model.parameters():
        found += len(parameter._post_accumulate_grad_hooks or ())
    return found


class TestOff:
    def test_nothing_listens_in_the_step(self):
        model, optimizer = pair()
        before = hooks_of(model, optimizer)
        step = optimizer.train_step
        assert monitor.current() is None
        assert type(heartbeat._own()) is heartbeat._Writer
        assert [type(s) for s in (step.precision, step.grad_sync, step.param_sync)] == [
            *(Precision, GradientSync, ParameterSync),
        ]
        assert step.on_loss is None
        backward = torch.Tensor.backward
        start()
        assert hooks_of(model, optimizer) > before
        assert torch.Tensor.backward is not backward
        monitor.stop()
        assert torch.Tensor.backward is backward
        assert hooks_of(model, optimizer) == before
        assert step.on_loss is None
        assert type(heartbeat._own()) is heartbeat._Writer

    def test_what_another_library_puts_around_backward_stays(self, monkeypatch):
        shown, original = [], torch.Tensor.backward
        remove = plain_backward.listen(lambda loss: shown.append(loss.item()))
        inner = torch.Tensor.backward
        monkeypatch.setattr(torch.Tensor, "backward", lambda loss: inner(loss))
        remove()
        assert torch.Tensor.backward is not original
        remove = plain_backward.listen(lambda loss: shown.append(loss.item()))
        torch.ones(1, requires_grad=True).sum().backward()
        remove()
        assert shown == [1.0]  # once, though the method of the first time is still inside
        monkeypatch.setattr(torch.Tensor, "backward", original)

    def test_switch_is_stronger_than_the_folder(self, monkeypatch, tmp_path):
        monkeypatch.setenv("FLEETX_LOG_DIR", str(tmp_path / "log"))
        monkeypatch.setenv("FLEETX_MONITOR", "0")
        pair()
        assert monitor.current() is None
        assert not (tmp_path / "log").exists()

    def test_wrong_switch_is_named(self, monkeypatch):
        monkeypatch.setenv("FLEETX_MONITOR", "yes")
        with pytest.raises(ValueError, match="FLEETX_MONITOR must be 0 or 1, not 'yes'"):
            fleet.init(is_collective=True)

    def test_servers_measure_nothing(self, monkeypatch, tmp_path):
        monkeypatch.setenv("FLEETX_LOG_DIR", str(tmp_path / "log"))
        servers = ["127.0.0.1:6001"]
        role = fleet.UserDefinedRoleMaker(
            current_id=0, role=fleet.Role.SERVER, worker_num=1, server_endpoints=servers
        )
        fleet.init(role)
        assert monitor.current() is None
        assert not (tmp_path / "log").exists()


class TestModules:
    def test_a_plain_step(self):
        model, optimizer = pair()
        kept = start()
        losses = train(model, optimizer)
        assert [r.step for r in kept.records] == [1, 2, 3]
        assert [r.samples for r in kept.records] == [5, 5, 5]
        assert all(r.wait == 0 and r.seconds > 0 for r in kept.records)
        assert [r.loss for r in kept.records] == pytest.approx(losses)
        assert kept.records[0].data == 0
        assert all(0 < r.data < r.seconds for r in kept.records[1:])

    def test_losses_of_minimize_and_note_are_known(self):
        model, optimizer = pair()
        kept = start()
        optimizer.minimize(model(torch.ones(5, 4)).pow(2).mean())
        monitor.note(loss=torch.tensor(2.5))
        train(model, optimizer, 1)
        assert kept.records[0].loss > 0
        assert kept.records[1].loss == 2.5

    def test_loss_that_the_model_returns_is_known(self):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.inside = nn.Linear(4, 1)

            def forward(self, x):
                return self.inside(x).pow(2).mean()

        fleet.init(is_collective=True)
        model = fleet.distributed_model(Net())
        optimizer = fleet.distributed_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        kept = start()
        loss = model(torch.ones(2, 4))
        loss.backward()
        optimizer.step()
        assert kept.records[0].loss == pytest.approx(loss.item())

    def test_steps_of_techniques_count_though_only_some_update(self):
        model, optimizer = pair(gradient_merge=True, gradient_merge_configs={"k_steps": 2})
        kept = start()
        stages = optimizer.train_step
        assert type(stages.grad_sync) is not GradientSync
        train(model, optimizer, 4)
        assert [r.step for r in kept.records] == [1, 2, 3, 4]
        state = optimizer.state_dict()
        monitor.stop()
        assert set(optimizer.state_dict()["fleet"]) == set(state["fleet"])
        assert type(stages.param_sync) is ParameterSync

    def test_evaluation_belongs_to_no_step(self):
        model, optimizer = pair()
        kept = start()
        train(model, optimizer, 1)
        with torch.no_grad():
            model(torch.ones(9, 4))
        train(model, optimizer, 1)
        assert kept.records[1].samples == 5
        assert kept.records[1].data == 0  # the gap was no waiting

    def test_measuring_changes_no_parameter(self):
        results = []
        for measured in (False, True):
            torch.manual_seed(3)
            model, optimizer = pair()
            if measured:
                start()
            train(model, optimizer)
            results.append([p.detach().clone() for p in model.parameters()])
            monitor.stop()
        assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


class TestPrograms:
    def run_program(self, fetch: bool, steps: int = 3):
        fleet.init(is_collective=True)
        main, startup = static.Program(), static.Program()
        with static.program_guard(main, startup):
            x = static.data("x", [None, 4], "float32")
            y = layers.fc(x, size=1)
            loss = layers.mean(layers.square(y))
            test = main.clone(for_test=True)
            optimizer = fleet.distributed_optimizer(static.optimizer.SGD(0.02))
            optimizer.minimize(loss, startup)
        exe = static.Executor()
        feed = {"x": np.ones((7, 4), "float32")}
        found = []
        with static.scope_guard(static.Scope()):
            exe.run(startup)
            for _ in range(steps):
                found.append(exe.run(main, feed=feed, fetch_list=[loss] if fetch else [y]))
                exe.run(test, feed=feed, fetch_list=[y])
        return main, found

    @pytest.mark.parametrize("fetch", [True, False], ids=["loss fetched", "loss not fetched"])
    def test_a_run_is_a_step(self, fetch):
        kept = start()
        fleet.init(is_collective=True)
        _, found = self.run_program(fetch)
        assert [r.step for r in kept.records] == [1, 2, 3]
        assert [r.samples for r in kept.records] == [7, 7, 7]
        losses = [r.loss for r in kept.records]
        assert losses[0] > losses[1] > losses[2]
        assert all(len(values) == 1 for values in found)
        if fetch:
            assert losses == [float(values[0].item()) for values in found]

    def test_nothing_is_left_when_measuring_ends(self):
        main, _ = self.run_program(fetch=True)
        assert main.binding.measured is None
        start()
        assert main.binding.measured is not None
        monitor.stop()
        assert main.binding.measured is None


class TestLoops:
    def test_watch_counts_batches_where_nothing_of_fleet_trains(self, capsys):
        fleet.init(is_collective=True)  # forgets what trained before
        seen = []
        for batch in monitor.watch([torch.ones(3), torch.ones(2)], epochs=2):
            seen.append(len(batch))
            monitor.note(loss=1.5)
        assert seen == [3, 2, 3, 2]
        assert monitor.current().recorder.steps == 4
        last = capsys.readouterr().err.splitlines()[-1]
        assert "epoch 2/2  step 4/4  loss 1.5000" in last

    def test_epochs_around_watch(self, capsys):
        model, optimizer = pair()
        kept = start()
        for epoch in monitor.epochs(2):
            for batch in monitor.watch(iter([torch.ones(5, 4)] * 2), total=2):
                optimizer.minimize(model(batch).pow(2).mean())
                optimizer.clear_grad()
            monitor.note(**{"test accuracy": 0.5 + epoch / 10})
        assert [r.epoch for r in kept.records] == [1, 1, 2, 2]
        assert all(r.data > 0 for r in kept.records)
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 3  # the first step, and each epoch's end
        assert lines[-1].endswith("0:00 left  test accuracy 0.6")

    def test_sampler_is_told_the_epoch(self, capsys):
        class Loader(list):
            def set_epoch(self, number):
                self.number = number

        loader = Loader([1])
        assert [loader.number for _ in monitor.watch(loader, epochs=3)] == [0, 1, 2]

    def test_an_error_in_the_loop_ends_the_line(self):
        loop = monitor.watch([1, 2])
        next(loop)
        loop.close()
        assert not monitor.current().progress.is_open

    def test_progress_can_be_switched_off(self, monkeypatch, capsys):
        monitor.stop()  # a run of another test keeps the line that it has
        monkeypatch.setenv("FLEETX_PROGRESS", "0")
        assert list(monitor.watch([1, 2])) == [1, 2]
        assert capsys.readouterr().err == ""

    def test_wrong_number_of_epochs(self):
        with pytest.raises(ValueError, match="must be 0 or more, not -1"):
            next(monitor.epochs(-1))


class TestAsked:
    def test_timeline_in_a_folder_of_its_own(self, monkeypatch, tmp_path):
        assert "FLEETX_TIMELINE" not in what_was_asked("fleet.init", fleet.DistributedStrategy())
        monkeypatch.setenv("FLEETX_TIMELINE", str(tmp_path / "lines"))
        monkeypatch.setenv("FLEETX_TIMELINE_STEPS", "2")
        # Workers that do not all keep one would wait for each other's clocks: they compare first.
        assert "FLEETX_TIMELINE" in what_was_asked("fleet.init", fleet.DistributedStrategy())
        train(*pair())
        monitor.stop()
        trace = json.loads((tmp_path / "lines" / "timeline.json").read_text())
        names = [event["name"] for event in trace["traceEvents"] if event["ph"] == "X"]
        stages = ["step 1", "forward", "backward", "update"]
        assert names == [*stages, "step 2", "waiting for data", *stages[1:]]

    def test_measurements_in_the_folder(self, monkeypatch, tmp_path):
        monkeypatch.setenv("FLEETX_LOG_DIR", str(tmp_path))
        train(*pair(), steps=4)
        monitor.stop()
        run = read_run(tmp_path)
        assert run.problems == []
        assert [r.step for r in run.workers[0].records] == [1, 2, 3, 4]
        assert {row["stage"] for row in run.facts["strategy"]} == {str(stage) for stage in Stage}

    def test_missing_package_is_named(self, monkeypatch, tmp_path):
        monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
        monkeypatch.setenv("FLEETX_TENSORBOARD", "1")
        monkeypatch.setenv("FLEETX_LOG_DIR", str(tmp_path))
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'fleetx\[tensorboard\]'"):
            fleet.init(is_collective=True)


class TestRecorder:
    def test_waits_count_once_and_only_within_steps(self):
        kept = Kept()
        recorder = Recorder([kept])
        heartbeat.listen(recorder.waited)
        try:
            with heartbeat.collective("before training"):
                pass
            recorder.forward_began(1)
            with heartbeat.collective("outer"), heartbeat.collective("inner"):
                pass
            recorder.step_ended()
        finally:
            heartbeat.listen(None)
        (record,) = kept.records
        assert 0 < record.wait < record.seconds
        recorder.close()
        assert kept.closed

    def test_heartbeat_goes_on_counting(self, tmp_path, monkeypatch):
        path = tmp_path / "pulse"
        heartbeat.prepare(path)
        monkeypatch.setenv("FLEETX_HEARTBEAT", str(path))
        monkeypatch.setattr(heartbeat, "_writer", None)
        heartbeat.beat()
        heartbeat.listen(lambda *_: None)
        heartbeat.beat()
        heartbeat.listen(None)
        heartbeat.beat()
        assert heartbeat.read(path).steps == 3


@pytest.mark.parametrize(
    ("batch", "count"),
    [
        (torch.ones(3, 2), 3),
        ([np.zeros((4, 1)), 5], 4),
        ({"x": {"y": torch.ones(2)}}, 2),
        ((), 0),
        (torch.tensor(1.0), 0),
        ("text", 0),
    ],
)
def test_samples_in_a_batch(batch, count):
    assert samples_in(batch) == count


def test_samples_are_sequences_where_there_are_any():
    tensor = LoDTensor()
    tensor.set(np.zeros((5, 1), "float32"), static.CPUPlace())
    tensor.set_lod([[0, 2, 5]])
    assert samples_in(tensor) == 2
