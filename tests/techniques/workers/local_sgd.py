"""LocalSGD on two workers, as a PyTorch module and as a program, case by case; every worker writes
the parameters it had after each step as JSON."""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from fleetx import fleet, static
from fleetx.static import layers

folder = Path(sys.argv[1])
torch.set_default_dtype(torch.float64)
RATES = [0.125] * 3 + [0.0625] * 3 + [0.03125] * 6  # exact in any precision
STEPS = len(RATES)
CASES = {
    "all-reduce": ({}, {}),
    "every step": ({"localsgd": True}, {}),
    "k3": ({"localsgd": True, "localsgd_configs": {"k_steps": 3, "begin_step": 2}}, {}),
    "k3, hierarchical": (
        {
            "localsgd": True,
            "localsgd_configs": {"k_steps": 3, "begin_step": 2},
            "use_hierarchical_allreduce": True,
            "hierarchical_allreduce_inter_nranks": 2,
            "nccl_comm_num": 2,
        },
        {},
    ),
    "k3, momentum": (
        {"localsgd": True, "localsgd_configs": {"k_steps": 3, "begin_step": 2}},
        {"momentum": 0.9, "batch_norm": True},
    ),
    "adaptive": (
        {
            "adaptive_localsgd": True,
            "adaptive_localsgd_configs": {"init_k_steps": 2, "begin_step": 2},
        },
        {},
    ),
    "beta": (
        {"localsgd": True, "auto": True, "localsgd_configs": {"k_steps": 2, "begin_step": 2}},
        {},
    ),
    "outer": (
        {
            "localsgd": True,
            "localsgd_configs": {
                "k_steps": 2,
                "begin_step": 3,
                "outer_momentum": 0.5,
                "outer_lr": 0.7,
                "outer_nesterov": True,
            },
        },
        {},
    ),
    "momentum averaged": (
        {"localsgd": True, "localsgd_configs": {"k_steps": 3, "average_momentum": True}},
        {"momentum": 0.9},
    ),
    "merged": (
        {
            "localsgd": True,
            "localsgd_configs": {"k_steps": 2},
            "gradient_merge": True,
            "gradient_merge_configs": {"k_steps": 2},
        },
        {"momentum": 0.9},
    ),
    "half": (
        {
            "localsgd": True,
            "fp16_allreduce": True,
            "localsgd_configs": {"k_steps": 3, "begin_step": 2},
        },
        {"momentum": 0.9, "batch_norm": True},
    ),
}


def begin(settings):
    strategy = fleet.DistributedStrategy()
    for name, value in settings.items():
        setattr(strategy, name, value)
    fleet.init(is_collective=True, strategy=strategy)


def batches():
    data = np.random.default_rng(1)
    for _ in range(STEPS):
        x, y = data.standard_normal((8, 6)), data.integers(0, 3, (8,))
        share = slice(fleet.worker_index(), None, 2)
        yield x[share], y[share]


def first_values():
    data = np.random.default_rng(2)
    shapes = {"w1": (6, 8), "b1": (8,), "w2": (8, 3), "b2": (3,)}
    return {name: data.standard_normal(shape) * 0.5 for name, shape in shapes.items()}


class Net(nn.Module):
    def __init__(self, batch_norm):
        super().__init__()
        for name, value in first_values().items():
            noise = 0 if fleet.worker_index() == 0 else 1  # rank 0's values must win
            setattr(self, name, nn.Parameter(torch.tensor(value) + noise))
        self.norm = nn.BatchNorm1d(8) if batch_norm else nn.Identity()

    def forward(self, x):
        hidden = torch.tanh(self.norm(x @ self.w1 + self.b1))
        return hidden @ self.w2 + self.b2


def train_eager(settings, options, breaks_at=None):
    begin(settings)

    def make():
        net = fleet.distributed_model(Net(options.get("batch_norm")))
        inner = torch.optim.SGD(net.parameters(), lr=9.0, momentum=options.get("momentum", 0.0))
        return net, fleet.distributed_optimizer(inner)

    net, optimizer = make()
    record = {"values": [], "losses": [], "intervals": [], "mean": []}
    for i, ((x, y), rate) in enumerate(zip(batches(), RATES, strict=True)):
        if i == breaks_at:
            path = folder / f"checkpoint.{fleet.worker_index()}"
            torch.save([net.state_dict(), optimizer.state_dict()], path)
            net, optimizer = make()
            states = torch.load(path)
            net.load_state_dict(states[0])
            optimizer.load_state_dict(states[1])
        optimizer.set_lr(rate)
        loss = nn.functional.cross_entropy(net(torch.tensor(x)), torch.tensor(y))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step(loss=loss)
        values = [p.flatten() for p in (net.w1, net.b1, net.w2, net.b2)]
        record["values"].append(torch.cat(values).tolist())
        record["losses"].append(loss.item())
        record["intervals"].append(getattr(optimizer.train_step.param_sync, "k_steps", 1))
        if options.get("batch_norm"):
            norm = net.norm
            record["mean"].append(torch.cat([norm.running_mean, norm.running_var]).tolist())
    return record


def train_static(settings, options, breaks_at=None):
    begin(settings)
    main, startup, scope = static.Program(), static.Program(), static.Scope()
    with (
        static.program_guard(main, startup),
        static.scope_guard(scope),
        static.unique_name.guard(),
    ):
        x = layers.data("x", shape=[6], dtype="float64")
        y = layers.data("y", shape=[1], dtype="int64")
        hidden = layers.fc(x, 8, param_attr="w1", bias_attr="b1")
        if options.get("batch_norm"):
            hidden = layers.batch_norm(
                hidden, moving_mean_name="mean", moving_variance_name="variance"
            )
        prediction = layers.fc(
            layers.tanh(hidden), 3, param_attr="w2", bias_attr="b2", act="softmax"
        )
        loss = layers.mean(layers.cross_entropy(prediction, y))
        bounds = [i for i in range(1, STEPS) if RATES[i] != RATES[i - 1]]
        rate = layers.piecewise_decay(bounds, [RATES[0], *(RATES[i] for i in bounds)])
        if options.get("momentum"):
            inner = static.optimizer.Momentum(rate, options["momentum"])
        else:
            inner = static.optimizer.SGD(rate)
        fleet.distributed_optimizer(inner).minimize(loss)
        exe = static.Executor(static.CPUPlace())
        exe.run(fleet.startup_program)
        for name, value in first_values().items():
            scope.find_var(name).get_tensor().set(value, static.CPUPlace())
            if scope.find_var(name + "@SNAPSHOT") is not None:
                snapshot = scope.find_var(name + "@SNAPSHOT").get_tensor()
                snapshot.set(value, static.CPUPlace())
        record = {"values": [], "losses": [], "intervals": [], "mean": []}
        record["ops"] = [op.type for op in fleet.main_program.global_block().ops]
        record["inner_ops"] = [
            op.type for block in fleet.main_program.blocks[1:] for op in block.ops
        ]
        record["names"] = sorted(v.name for v in fleet.main_program.list_vars() if v.persistable)
        for i, (bx, by) in enumerate(batches()):
            if i == breaks_at:
                path = str(folder / f"static.{fleet.worker_index()}")
                # Each worker's own state: fleet.save_persistables would average first.
                static.io.save_persistables(exe, path, fleet.main_program)
                exe.run(fleet.startup_program)
                static.io.load_persistables(exe, path, fleet.main_program)
            feed = {"x": bx, "y": by[:, None]}
            (value,) = exe.run(fleet.main_program, feed=feed, fetch_list=[loss])
            read = [np.array(scope.find_var(n).get_tensor()) for n in ("w1", "b1", "w2", "b2")]
            record["values"].append(np.concatenate([a.ravel() for a in read]).tolist())
            record["losses"].append(value.item())
            k = scope.find_var("k_steps")
            record["intervals"].append(1 if k is None else int(np.array(k.get_tensor())[0]))
            if options.get("batch_norm"):
                read = [np.array(scope.find_var(n).get_tensor()) for n in ("mean", "variance")]
                record["mean"].append(np.concatenate(read).tolist())
    return record


def wait_for(path):
    while not path.exists():  # the test that started this job has a limit
        time.sleep(0.01)


def straggle():
    """Worker 1 waits until worker 0 has done its local steps, which must not wait for worker 1."""
    begin({"localsgd": True, "localsgd_configs": {"k_steps": 4}})
    net = fleet.distributed_model(Net(False))
    optimizer = fleet.distributed_optimizer(torch.optim.SGD(net.parameters(), lr=0.1))
    for step, (x, y) in enumerate(list(batches())[:5], 1):
        if step == 3 and fleet.worker_index() == 1:
            wait_for(folder / "first is at step 4")
        nn.functional.cross_entropy(net(torch.tensor(x)), torch.tensor(y)).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 4 and fleet.worker_index() == 0:
            (folder / "first is at step 4").touch()
    return net.w1.flatten().tolist()


def lose_a_loss(nan_at):
    """One worker's loss is no number in one step; both go on with the same intervals."""
    begin({"adaptive_localsgd": True, "adaptive_localsgd_configs": {"init_k_steps": 2}})
    net = fleet.distributed_model(Net(False))
    optimizer = fleet.distributed_optimizer(torch.optim.SGD(net.parameters(), lr=0.1))
    intervals = []
    for step, (x, y) in enumerate(batches(), 1):
        loss = nn.functional.cross_entropy(net(torch.tensor(x)), torch.tensor(y))
        loss.backward()
        wrong = step == nan_at and fleet.worker_index() == 1
        optimizer.step(loss=loss * float("nan") if wrong else loss)
        optimizer.zero_grad()
        intervals.append(optimizer.train_step.param_sync.k_steps)
    return intervals


result = {"eager": {}, "static": {}, "eager again": {}, "static again": {}}
for name, (settings, options) in CASES.items():
    result["eager"][name] = train_eager(settings, options)
    result["static"][name] = train_static(settings, options)
    if name in ("k3, momentum", "adaptive", "outer", "half", "merged"):
        result["eager again"][name] = train_eager(settings, options, breaks_at=7)
        result["static again"][name] = train_static(settings, options, breaks_at=7)
result["straggler"] = straggle()
result["nan"] = {at: lose_a_loss(at) for at in (1, 3)}
(folder / f"{fleet.worker_index()}.json").write_text(json.dumps(result))
