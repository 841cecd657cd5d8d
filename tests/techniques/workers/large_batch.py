"""gradient_merge, lars and lamb on two workers, as a PyTorch module and as a program, case by case.

Every worker writes the parameters it had after each step, and how many messages it sent, as JSON.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

from fleetx import fleet, static
from fleetx.static import layers
from fleetx.static.optimizer import optimizers_of_2x

folder = Path(sys.argv[1])
torch.set_default_dtype(torch.float64)
RATES = [0.125] * 6 + [0.0625] * 6  # exact in any precision, as are the betas
BETAS = (0.875, 0.9375)
MERGE = {"gradient_merge": True, "gradient_merge_configs": {"k_steps": 3, "avg": True}}
LARS = {"lars_coeff": 0.5, "lars_weight_decay": 0.125, "exclude_from_weight_decay": ["b"]}
LAMB = {"lamb_weight_decay": 0.125, "exclude_from_weight_decay": ["1", "b2"]}
CASES = {
    "merge sgd": (MERGE, "sgd"),
    "merge momentum": (MERGE, "momentum"),
    "merge adam": (MERGE, "adam"),
    "merge sum": ({**MERGE, "gradient_merge_configs": {"k_steps": 3, "avg": False}}, "sgd"),
    "merge half": ({**MERGE, "fp16_allreduce": True}, "momentum"),
    "merge hierarchical": (
        {
            **MERGE,
            "use_hierarchical_allreduce": True,
            "hierarchical_allreduce_inter_nranks": 2,
            "nccl_comm_num": 2,
        },
        "momentum",
    ),
    "lars": ({"lars": True, "lars_configs": LARS}, "momentum"),
    "lamb": ({"lamb": True, "lamb_configs": LAMB}, "adam"),
    "merge lars": ({**MERGE, "lars": True, "lars_configs": LARS}, "momentum"),
    "merge lamb": ({**MERGE, "lamb": True, "lamb_configs": LAMB}, "adam"),
}


def begin(settings):
    strategy = fleet.DistributedStrategy()
    for name, value in settings.items():
        setattr(strategy, name, value)
    fleet.init(is_collective=True, strategy=strategy)


def batches():
    data = np.random.default_rng(1)
    for _ in RATES:
        x, y = data.standard_normal((8, 6)), data.integers(0, 3, (8,))
        share = slice(fleet.worker_index(), None, fleet.worker_num())
        yield x[share], y[share]


def first_values():
    data = np.random.default_rng(2)
    shapes = {"w1": (6, 8), "b1": (8,), "w2": (8, 3), "b2": (3,)}
    return {name: data.standard_normal(shape) * 0.5 for name, shape in shapes.items()}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        for name, value in first_values().items():
            noise = 0 if fleet.worker_index() == 0 else 1  # rank 0's values must win
            setattr(self, name, nn.Parameter(torch.tensor(value) + noise))

    def forward(self, x):
        return torch.tanh(x @ self.w1 + self.b1) @ self.w2 + self.b2


def train_eager(settings, kind, breaks_at=None):
    begin(settings)
    inner = {
        "sgd": lambda p: torch.optim.SGD(p, lr=RATES[0]),
        "momentum": lambda p: torch.optim.SGD(p, lr=RATES[0], momentum=0.9, weight_decay=0.01),
        "adam": lambda p: torch.optim.Adam(p, lr=RATES[0], betas=BETAS, weight_decay=0.01),
    }[kind]

    def make():
        net = fleet.distributed_model(Net())
        users = inner(net.parameters())
        # On the script's own optimizer, made before fleet may replace it.
        schedule = torch.optim.lr_scheduler.LambdaLR(users, lambda i: RATES[min(i, 11)] / RATES[0])
        return net, fleet.distributed_optimizer(users), schedule

    net, optimizer, schedule = make()
    record = {"values": [], "losses": []}
    for i, (x, y) in enumerate(batches()):
        if i == breaks_at:
            path = folder / f"checkpoint.{fleet.worker_index()}"
            states = [net.state_dict(), optimizer.state_dict(), schedule.state_dict()]
            torch.save(states, path)
            net, optimizer, schedule = make()
            for part, state in zip((net, optimizer, schedule), torch.load(path), strict=True):
                part.load_state_dict(state)
        # Where a script forgets gradients makes no difference.
        if kind == "momentum" or (kind == "adam" and i % 3 == 0 and "gradient_merge" in settings):
            optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(torch.tensor(x)), torch.tensor(y))
        loss.backward()
        optimizer.step()
        if kind == "sgd" or (kind == "adam" and "gradient_merge" not in settings):
            optimizer.zero_grad()
        schedule.step()
        values = [p.flatten() for p in (net.w1, net.b1, net.w2, net.b2)]
        record["values"].append(torch.cat(values).tolist())
        record["losses"].append(loss.item())
    if "gradient_merge" in settings:
        record["messages"] = optimizer.train_step.grad_sync.inner.all_reduce._started
    return record


def train_static(settings, kind, breaks_at=None):
    begin(settings)
    main, startup, scope = static.Program(), static.Program(), static.Scope()
    with (
        static.program_guard(main, startup),
        static.scope_guard(scope),
        static.unique_name.guard(),
    ):
        x = layers.data("x", shape=[6], dtype="float64")
        y = layers.data("y", shape=[1], dtype="int64")
        hidden = layers.fc(x, 8, param_attr="w1", bias_attr="b1", act="tanh")
        prediction = layers.fc(hidden, 3, param_attr="w2", bias_attr="b2", act="softmax")
        loss = layers.mean(layers.cross_entropy(prediction, y))
        rate = static.lr.PiecewiseDecay([6], [RATES[0], RATES[-1]])
        inner = {
            "sgd": lambda: static.optimizer.SGD(rate),
            "momentum": lambda: static.optimizer.Momentum(
                rate, 0.9, regularization=static.regularizer.L2Decay(0.01)
            ),
            "adam": lambda: optimizers_of_2x.Adam(rate, *BETAS, weight_decay=0.01),
        }[kind]()
        optimizer = fleet.distributed_optimizer(inner)
        optimizer.minimize(loss)
        exe = static.Executor(static.CPUPlace())
        exe.run(fleet.startup_program)
        for name, value in first_values().items():
            scope.find_var(name).get_tensor().set(value, static.CPUPlace())
        record = {"values": [], "losses": []}
        program = fleet.main_program
        record["ops"] = [[op.type for op in block.ops] for block in program.blocks]
        record["origin"] = [op.type for b in fleet._origin_program.blocks for op in b.ops]
        record["names"] = sorted(v.name for v in program.list_vars() if v.persistable)
        record["state"] = len(optimizer.state_dict())
        for i, (bx, by) in enumerate(batches()):
            if i == breaks_at:
                path = str(folder / f"static.{fleet.worker_index()}")
                fleet.save_persistables(exe, path)
                exe.run(fleet.startup_program)
                static.io.load_persistables(exe, path, program)
            feed = {"x": bx, "y": by[:, None]}
            (value,) = exe.run(program, feed=feed, fetch_list=[loss])
            rate.step()
            read = [np.array(scope.find_var(n).get_tensor()) for n in ("w1", "b1", "w2", "b2")]
            record["values"].append(np.concatenate([a.ravel() for a in read]).tolist())
            record["losses"].append(value.item())
        record["messages"] = program.binding.gradient_exchange.all_reduce._started
    return record


if __name__ == "__main__":
    written = {}
    for name, (settings, kind) in CASES.items():
        for front, train in (("eager", train_eager), ("static", train_static)):
            written[f"{name}, {front}"] = train(settings, kind)
            if name in ("merge adam", "lars", "lamb"):
                written[f"{name}, {front}, with a break"] = train(settings, kind, breaks_at=7)
    out = folder / f"{fleet.worker_index()}.json"
    out.write_text(json.dumps(written))
