"""Code for GPUs on a machine that may have none.

Three stand-ins. Torch's `lazy` device computes real numbers and refuses, as a GPU does, to mix its
tensors with those of the CPU. A process group refuses tensors of the CPU, as NCCL does.
Where code asks how many GPUs there are, the answer is given.
"""

import types
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from fleetx import cli, comm, fleet, static
from fleetx.applications import trainers
from fleetx.comm import device, hierarchy
from fleetx.comm.gradient_all_reduce import AllReduceSettings, GradientAllReduce
from fleetx.comm.role_groups import TrainingGroup
from fleetx.comm.world import backend_for
from fleetx.monitor import clock
from fleetx.static.readers.data_feeder import DataFeeder
from fleetx.static.run import profiler, self_check
from fleetx.static.run.place import Place
from fleetx.step.technique import Job
from fleetx.techniques import auto_candidates, auto_trials, recompute
from fleetx.techniques.amp import all_finite
from fleetx.techniques.peak_memory import PeakMemory
from fleetx.techniques.random_state import random_state_kept

pytestmark = pytest.mark.usefixtures("fresh_fleet")


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(device, "gpu_count", lambda: 2)


class TestChoice:
    """What is decided by the number of GPUs."""

    @pytest.mark.usefixtures("two_gpus")
    def test_each_worker_has_a_gpu(self):
        found = [device.device_of_worker(rank) for rank in range(3)]
        assert [str(d) for d in found] == ["cuda:0", "cuda:1", "cuda:0"]

    def test_collective_library(self):
        assert backend_for(torch.device("cuda", 1)) == "nccl"
        assert backend_for(torch.device("cuda"), launcher="mpi") == "nccl"
        assert backend_for(torch.device("cpu")) == "gloo"

    @pytest.mark.usefixtures("two_gpus")
    def test_places(self):
        assert static.is_compiled_with_cuda()
        assert static.cuda_places() == [static.CUDAPlace(0), static.CUDAPlace(1)]
        assert static.CUDAPlace(1).device() == torch.device("cuda", 1)
        with pytest.raises(ValueError, match=r"CUDAPlace\(2\) .* has 2 CUDA device"):
            static.CUDAPlace(2).device()

    @pytest.mark.usefixtures("two_gpus")
    @pytest.mark.parametrize("kind", ["AUTO", "CUDA"])
    def test_op_that_lists_places(self, kind):
        from fleetx.static.ops.places import get_places

        assert get_places(device_count=0, device_type=kind) == static.cuda_places()

    @pytest.mark.usefixtures("two_gpus")
    def test_feeder_divides_among_gpus(self):
        with static.program_guard(static.Program()):
            x = static.data("x", [None, 1], "float32")
        feeder = DataFeeder([x], static.CUDAPlace(0))
        assert feeder._places(None) == static.cuda_places()
        assert feeder._places(1) == [static.CUDAPlace(0)]

    @pytest.mark.usefixtures("two_gpus")
    def test_check_of_the_installation_trains_on_both_kinds(self, monkeypatch, capsys):
        trained = []
        monkeypatch.setattr(self_check, "_train", trained.append)
        self_check.run_check()
        assert trained == [static.CPUPlace(), static.CUDAPlace(0)]
        assert "works on CUDAPlace(0)" in capsys.readouterr().out

    @pytest.mark.usefixtures("two_gpus")
    @pytest.mark.filterwarnings("ignore:CUDA is not available")
    def test_profiler_records_gpus(self, tmp_path, capsys):
        with profiler.cuda_profiler(str(tmp_path / "trace")):
            assert torch.profiler.ProfilerActivity.CUDA in profiler._running.activities
            torch.ones(2).sum()
        assert (tmp_path / "trace").stat().st_size
        assert "aten::sum" in capsys.readouterr().out

    @pytest.mark.usefixtures("two_gpus")
    def test_trainer_runs_on_the_gpu_of_its_worker(self, monkeypatch):
        monkeypatch.setenv("FLAGS_selected_gpus", "1")
        assert trainers._place_of_worker() == static.CUDAPlace(1)

    @pytest.mark.usefixtures("two_gpus")
    def test_names_of_paddle(self):
        from paddle import device as names
        from paddle.fluid import core, framework

        assert core.get_cuda_device_count() == 2
        assert framework._current_expected_place() == static.CUDAPlace(0)
        assert names.get_device() == "gpu:0"
        assert names.get_cudnn_version() == torch.backends.cudnn.version()

    def test_auto_tries_float16_on_gpus(self):
        def names(kind: str) -> list[str]:
            job = auto_candidates.Facts(workers=1, machines=1, device=kind, parameters=10)
            config = auto_candidates.AutoConfig.read(fleet.DistributedStrategy().auto_configs)
            found = auto_candidates.candidates(fleet.DistributedStrategy(), config, job=job)
            return [candidate.name for candidate in found]

        assert "amp float16" in names("cuda")
        assert "amp float16" not in names("cpu")

    def test_info_lists_gpus(self):
        cards = [SimpleNamespace(name="Card", total_memory=16 * 2**30)] * 2
        assert cli._gpu_rows(cards) == [("GPU 0", "Card, 16 GiB"), ("GPU 1", "Card, 16 GiB")]
        assert "falls back to the CPU" in cli._gpu_rows([])[0][1]

    def test_memory_of_a_gpu(self):
        counters = SimpleNamespace(
            reset_peak_memory_stats=lambda where: None,
            memory_allocated=lambda where: 100,
            max_memory_allocated=lambda where: 250 + where.index,
        )
        watch = PeakMemory(torch.device("cuda", 1), counters)
        watch.start()
        assert watch.stop() == 151

    def test_random_state_of_all_devices(self):
        with random_state_kept():
            first = torch.rand(2)
        assert torch.equal(torch.rand(2), first)


@pytest.fixture(scope="session")  # once per process: torch registers the device only once
def lazy():
    """A device with real numbers that is not the CPU."""
    from torch._lazy import ts_backend

    ts_backend.init()
    if not hasattr(torch, "lazy"):
        # torch.utils.checkpoint looks for the random state of the device here.
        torch._register_device_module("lazy", types.ModuleType("lazy"))
    return torch.device("lazy")


class LazyPlace(Place):
    def device(self):
        return torch.device("lazy")


def train_module(where, optimizer=torch.optim.SGD, **switches):
    """Return the parameters after four steps on a device."""
    strategy = fleet.DistributedStrategy()
    for name, value in switches.items():
        setattr(strategy, name, value)
    fleet.init(is_collective=True, strategy=strategy)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).to(where)
    inputs = torch.randn(6, 4).to(where)
    targets = inputs.sum(1, keepdim=True)
    more = {"momentum": 0.9} if optimizer is torch.optim.SGD else {}
    model = fleet.distributed_model(network)
    updates = fleet.distributed_optimizer(optimizer(network.parameters(), lr=0.1, **more))
    for _ in range(4):
        updates.zero_grad()
        (model(inputs) - targets).square().mean().backward()
        updates.step()
    assert {p.device.type for p in network.parameters()} == {torch.device(where).type}
    return [p.detach().cpu() for p in network.parameters()]


def train_program(place, optimizer):
    """Return the losses of four steps on a place."""
    main, startup = static.Program(), static.Program()
    constant = static.initializer.Constant(0.1)
    with static.program_guard(main, startup):
        x = static.data("x", [None, 4], "float32")
        y = static.data("y", [None, 1], "float32")
        hidden = static.layers.fc(x, size=8, act="relu", param_attr=constant)
        predicted = static.layers.fc(hidden, size=1, param_attr=constant)
        loss = static.layers.mean(static.layers.square_error_cost(predicted, y))
        optimizer.minimize(loss)
    inputs = np.random.default_rng(0).standard_normal((6, 4), dtype=np.float32)
    feed = {"x": inputs, "y": inputs.sum(axis=1, keepdims=True)}
    with static.scope_guard(static.Scope()):
        executor = static.Executor(place)
        executor.run(startup)
        return [executor.run(main, feed=feed, fetch_list=[loss])[0].item() for _ in range(4)]


class TestOtherDevice:
    """Training on a device that is not the CPU gives the numbers of the CPU."""

    @pytest.mark.parametrize(
        "switches",
        [
            {},
            {"optimizer": torch.optim.Adam},
            {"gradient_merge": True, "gradient_merge_configs": {"k_steps": 2}},
            {"lars": True},
            {"lamb": True, "optimizer": torch.optim.Adam},
            {"dgc": True},
            {"localsgd": True, "localsgd_configs": {"k_steps": 2}},
            {"recompute": True, "recompute_configs": {"checkpoints": ["0"]}},
        ],
        ids=lambda switches: next(iter(switches), "plain"),
    )
    def test_modules(self, lazy, switches):
        expected = train_module("cpu", **switches)
        for ours, theirs in zip(train_module(lazy, **switches), expected, strict=True):
            torch.testing.assert_close(ours, theirs)

    def test_checkpoints_kept_on_the_host(self, lazy, monkeypatch):
        settings = {"checkpoints": ["0"]}
        expected = train_module("cpu", recompute=True, recompute_configs=settings)
        monkeypatch.setattr(recompute, "gpu_count", lambda: 1)
        settings["enable_offload"] = True
        found = train_module(lazy, recompute=True, recompute_configs=settings)
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs)

    @pytest.mark.parametrize("name", ["SGD", "Momentum", "Adam", "Adagrad", "Lamb"])
    @pytest.mark.usefixtures("lazy")
    def test_programs(self, name):
        more = {"momentum": 0.9} if name == "Momentum" else {}

        def losses(place: Place) -> list[float]:
            made = getattr(static.optimizer, name)(learning_rate=0.05, **more)
            return train_program(place, made)

        assert losses(LazyPlace()) == pytest.approx(losses(static.CPUPlace()), rel=1e-4)

    def test_finite(self, lazy):
        good, bad = torch.ones(3).to(lazy), torch.tensor([1.0, float("inf")]).to(lazy)
        large = torch.full((4,), 3e38).to(lazy)
        assert all_finite([good, large])
        assert not all_finite([good, bad])


class Done(dist._Work):
    def wait(self, timeout=None):
        return True


class GroupOfGpus(dist.ProcessGroup):
    """Two workers that always hold the same; refuses tensors of the CPU, as NCCL does."""

    def _checked(self, tensors):
        assert tensors
        assert all(tensor.device.type != "cpu" for tensor in tensors), "no backend for the CPU"
        return Done()

    def allreduce(self, tensors, options=None):
        kind = options.reduceOp if options else dist.ReduceOp.SUM
        for tensor in tensors if kind == dist.ReduceOp.SUM else []:
            tensor.add_(tensor)
        return self._checked(tensors)

    def allgather(self, parts, tensors, options=None):
        for part in parts[0]:
            part.copy_(tensors[0])
        return self._checked([*tensors, *parts[0]])

    def broadcast(self, tensors, options=None):
        return self._checked(tensors)

    def reduce(self, tensors, options=None):
        return self.allreduce(tensors)

    def alltoall_base(self, found, sent, found_sizes, sent_sizes, options=None):
        found.fill_(7)
        return self._checked([found, sent])

    def barrier(self, options=None):
        return Done()

    def size(self):
        return 2

    def getBackendName(self):
        return "gpus"

    @property
    def pg_name(self):
        return "gpus"


@pytest.fixture
def gpu_group(lazy, monkeypatch):
    """A job of two workers whose group takes tensors of the lazy device only."""
    if "gpus" not in dist.Backend.backend_list:
        dist.Backend.register_backend(
            "gpus", lambda store, rank, size, timeout: GroupOfGpus(rank, size), devices=["lazy"]
        )
    dist.init_process_group("gpus", store=dist.HashStore(), rank=0, world_size=2)
    monkeypatch.setattr(device, "_GPU", "lazy")
    for module in (device, hierarchy):
        monkeypatch.setattr(module, "takes_only_gpus", lambda backend: backend == "gpus")
    try:
        yield
    finally:
        comm.world.disconnect()


def test_only_nccl_refuses_the_cpu():
    assert device.takes_only_gpus("nccl")
    assert not device.takes_only_gpus("gloo")


@pytest.mark.usefixtures("gpu_group")
class TestGroupOfGpus:
    def test_stand_in_refuses_the_cpu(self):
        with pytest.raises(AssertionError, match="no backend for the CPU"):
            dist.all_reduce(torch.ones(1))

    @pytest.mark.parametrize("where", ["cpu", "lazy"])
    def test_values_of_the_host_take_the_way_over_the_gpu(self, where):
        value = torch.arange(3.0).to(where)
        for found, expected in [
            (comm.all_reduce(value), [0, 2, 4]),
            (comm.all_reduce(value, "max"), [0, 1, 2]),
            (comm.broadcast(value), [0, 1, 2]),
            (torch.cat(comm.all_gather(value)), [0, 1, 2, 0, 1, 2]),
        ]:
            assert found.device.type == where
            assert found.tolist() == expected
        assert value.tolist() == [0, 1, 2]

    def test_group_of_a_role_maker(self):
        group = TrainingGroup()
        assert group.all_reduce(torch.ones(2), "sum").tolist() == [2, 2]
        assert [part.tolist() for part in group.all_gather(torch.ones(1))] == [[1], [1]]
        parts = group.all_to_all([torch.ones(1), torch.ones(2)], [2, 3])
        assert [part.tolist() for part in parts] == [[7, 7], [7, 7, 7]]

    def test_clocks_are_compared_on_the_gpu(self):
        assert clock._message().device.type == "lazy"

    def test_what_workers_agree_on(self):
        assert auto_trials.most(Job(strategy=None), 3.0) == 3.0

    @pytest.mark.parametrize(
        "settings",
        [{}, {"communicators": 2}, {"dtype": torch.float16}],
        ids=lambda settings: next(iter(settings), "plain"),
    )
    def test_gradients(self, lazy, settings):
        exchange = GradientAllReduce(AllReduceSettings(**settings))
        bucket = torch.ones(8).to(lazy)
        for _ in range(2):
            exchange.start(bucket).wait()
        assert set(bucket.tolist()) == {4.0}

    def test_hierarchy_uses_one_thread(self):
        exchange = GradientAllReduce(AllReduceSettings(group_size=2))
        assert [len(groups._lanes) for groups in exchange._hierarchy] == [1]
        # Lazy tensors belong to the thread that made them; meta tensors have no numbers.
        exchange.start(torch.ones(8, device="meta")).wait()
