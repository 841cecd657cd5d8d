"""Trains with and without recompute, eager and static, and writes losses and states of both."""

import json
import sys
from pathlib import Path

import numpy as np
import torch

from fleetx import fleet, static
from fleetx.static import layers


def strategy_of(recompute, checkpoints, **more):
    strategy = fleet.DistributedStrategy()
    strategy.recompute = recompute
    strategy.recompute_configs = {"checkpoints": checkpoints}
    for name, value in more.items():
        setattr(strategy, name, value)
    return strategy


def batch(step):
    rng = np.random.default_rng([step, fleet.worker_index()])
    return rng.standard_normal((6, 8)).astype("float32")


def eager(recompute, **more):
    fleet.init(is_collective=True, strategy=strategy_of(recompute, ["Sequential"], **more))
    torch.manual_seed(fleet.worker_index())

    def block():
        return torch.nn.Sequential(
            torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Tanh(), torch.nn.Dropout(0.2)
        )

    model = torch.nn.ModuleDict({"a": block(), "b": block(), "head": torch.nn.Linear(8, 1)})

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = model

        def forward(self, x):
            return self.parts["head"](self.parts["b"](self.parts["a"](x))).mean()

    net = fleet.distributed_model(Net())
    optimizer = fleet.distributed_optimizer(torch.optim.SGD(net.parameters(), 0.1, momentum=0.9))
    losses = []
    for step in range(4):
        loss = net(torch.from_numpy(batch(step)))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, {k: v.tolist() for k, v in net.state_dict().items()}


def program(recompute, **more):
    fleet.init(is_collective=True)
    main, startup, scope = static.Program(), static.Program(), static.Scope()
    main.random_seed = startup.random_seed = 1
    with static.program_guard(main, startup), static.unique_name.guard():
        hidden, kept = layers.data("x", [8]), []
        for i in range(3):
            hidden = layers.fc(hidden, 8)
            hidden = layers.batch_norm(hidden, act="tanh")
            hidden = layers.dropout(hidden, 0.2, seed=i + 1)
            kept.append(hidden)
        loss = layers.mean(layers.fc(hidden, 1))
        strategy = strategy_of(recompute, kept, **more)
        optimizer = static.optimizer.Momentum(0.1, 0.9)
        fleet.distributed_optimizer(optimizer, strategy).minimize(loss)
    exe, losses = static.Executor(), []
    exe.run(startup, scope=scope)
    for step in range(4):
        found = exe.run(main, feed={"x": batch(step)}, fetch_list=[loss], scope=scope)
        losses.append(float(found[0][0]))
    names = [v.name for v in main.list_vars() if v.persistable]
    return losses, {n: np.array(scope.find_var(n).get_tensor()).tolist() for n in names}


CASES = {
    "eager": (eager, {}),
    "eager, own gradients": (eager, {"localsgd": True, "localsgd_configs": {"k_steps": 2}}),
    "static": (program, {}),
    "static, statistics over all workers": (program, {"sync_batch_norm": True}),
    "static, amp": (program, {"amp": True, "amp_configs": {"init_loss_scaling": 128.0}}),
}
result = {
    name: [case(recompute, **more) for recompute in (False, True)]
    for name, (case, more) in CASES.items()
}
Path(sys.argv[1], f"{fleet.worker_index()}.json").write_text(json.dumps(result))
