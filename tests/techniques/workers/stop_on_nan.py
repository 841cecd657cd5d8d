"""Trains with stop_on_nan, case by case; worker 1 is given an infinite input in its fourth step.

Each worker writes the step after which it stopped and the words, or None and its last loss."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

from fleetx import fleet, static
from fleetx.static import layers

STEPS, BAD, WIDTH = 8, 4, 130
STOP = {"stop_on_nan": True}
MERGE = {"gradient_merge": True, "gradient_merge_configs": {"k_steps": 3}}
LOCAL = {"localsgd": True, "localsgd_configs": {"k_steps": 3, "begin_step": 0}}
CASES = {
    "off": {},
    "plain": STOP,
    "minimize": STOP,
    "finite loss": STOP,
    "merge": {**STOP, **MERGE},
    "localsgd": {**STOP, **LOCAL},
    "merge localsgd": {**STOP, **MERGE, "localsgd": True, "localsgd_configs": {"begin_step": 0}},
    "dgc": {**STOP, "dgc": True, "dgc_configs": {"sparsity": [0.9]}},
    "amp": {**STOP, "amp": True, "amp_configs": {"init_loss_scaling": 8.0}},
    "amp, scale 1": {**STOP, "amp": True, "amp_configs": {"init_loss_scaling": 1.0}},
}
PROGRAMS = ["off", "plain", "merge", "localsgd", "amp"]


class Rooted(torch.autograd.Function):
    """Has a finite value and an infinite gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * math.inf


def begin(settings):
    strategy = fleet.DistributedStrategy()
    for name, value in settings.items():
        setattr(strategy, name, value)
    fleet.init(is_collective=True, strategy=strategy)


def is_bad(step):
    return step == BAD and fleet.worker_index() == fleet.worker_num() - 1


def batch(step):
    rng = np.random.default_rng([fleet.worker_index(), step])
    return rng.standard_normal((4, WIDTH)).astype("float32")


def modules(name, settings):
    begin(settings)
    torch.manual_seed(1)
    model = fleet.distributed_model(
        nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 2))
    )
    inner = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    optimizer = fleet.distributed_optimizer(inner)
    loss = None
    for step in range(1, STEPS + 1):
        x = torch.from_numpy(batch(step))
        if is_bad(step) and name != "finite loss":
            x[0] = math.inf
            x[1] = -math.inf
        out = model(x)
        if is_bad(step) and name == "finite loss":
            out = Rooted.apply(out)
        loss = out.square().mean()
        try:
            if name == "minimize":
                optimizer.minimize(loss)
            else:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        except FloatingPointError as error:
            return {"stopped": step, "words": str(error)}
    finite = all(bool(p.isfinite().all()) for p in model.parameters())
    return {"stopped": None, "finite": finite}


def programs(settings):
    begin(settings)
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), static.unique_name.guard():
        x = static.data("x", [None, WIDTH], "float32")
        out = layers.fc(layers.fc(x, 8, act="tanh"), 2)
        loss = layers.mean(layers.square(out) * layers.reduce_mean(x))
        fleet.distributed_optimizer(static.optimizer.Momentum(0.01, 0.5)).minimize(loss, startup)
    with static.scope_guard(static.Scope()):
        exe = static.Executor(static.CPUPlace())
        exe.run(startup)
        for step in range(1, STEPS + 1):
            values = batch(step)
            if is_bad(step):
                values[0] = math.nan
            try:
                exe.run(main, feed={"x": values}, fetch_list=[loss])
            except FloatingPointError as error:
                return {"stopped": step, "words": str(error)}
        scope = static.global_scope()
        found = [np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters()]
        return {"stopped": None, "finite": all(bool(np.isfinite(v).all()) for v in found)}


def main():
    fleet.init(is_collective=True)
    result = {
        "modules": {name: modules(name, settings) for name, settings in CASES.items()},
        "programs": {name: programs(CASES[name]) for name in PROGRAMS},
    }
    Path(sys.argv[1], f"{fleet.worker_index()}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
