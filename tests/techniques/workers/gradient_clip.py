"""Trains with clipped gradients, case by case, as a PyTorch module and as a program.

Every worker writes the parameters it had after each update, and what it was told, as JSON."""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import nn

from fleetx import fleet, static
from fleetx.static import layers

UPDATES, K, ROWS, WIDTH = 4, 3, 4, 5
LIMIT = 0.25
MERGE = {"gradient_merge": True, "gradient_merge_configs": {"k_steps": K}}
CLIP = {"gradient_clip": True, "gradient_clip_configs": {"norm": LIMIT}}
CASES = {
    "norm": CLIP,
    "norm of order 1": {
        "gradient_clip": True,
        "gradient_clip_configs": {"norm": LIMIT, "norm_type": 1.0},
    },
    "value": {"gradient_clip": True, "gradient_clip_configs": {"value": 0.125}},
    "merge": {**CLIP, **MERGE},
    "merge value": {**MERGE, "gradient_clip": True, "gradient_clip_configs": {"value": 0.125}},
    "merge hierarchical": {
        **CLIP,
        **MERGE,
        "use_hierarchical_allreduce": True,
        "hierarchical_allreduce_inter_nranks": 2,
    },
    "merge amp": {
        **CLIP,
        **MERGE,
        "amp": True,
        "amp_configs": {"init_loss_scaling": 1024.0},  # float64 stays as it is
    },
}


def data():
    """Return inputs and targets of all workers: [update, part of a merge, worker, row, ...]."""
    rng = np.random.default_rng(3)
    shape = (UPDATES, K, fleet.worker_num(), ROWS)
    return rng.standard_normal((*shape, WIDTH)), rng.standard_normal((*shape, 1))


def weights():
    rng = np.random.default_rng(4)
    return rng.standard_normal((WIDTH, 4)), rng.standard_normal((4, 1))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = (nn.Parameter(torch.tensor(value)) for value in weights())

    def forward(self, x):
        return torch.tanh(x @ self.a) @ self.b


def begin(settings):
    strategy = fleet.DistributedStrategy()
    for name, value in settings.items():
        setattr(strategy, name, value)
    fleet.init(is_collective=True, strategy=strategy)


def make(settings):
    begin(settings)
    model = fleet.distributed_model(Net())
    inner = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
    return model, fleet.distributed_optimizer(inner)


def part(update, k):
    x, y = (torch.tensor(values[update, k, fleet.worker_index()]) for values in data())
    return x, y


def values(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()]).tolist()


def train(settings):
    model, optimizer = make(settings)
    found = []
    for update in range(UPDATES):
        for k in range(K if "gradient_merge" in settings else 1):
            x, y = part(update, k)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        found.append(values(model))
    return found


def program(settings, *, own_clip=False):
    begin(settings)
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), static.unique_name.guard():
        x = static.data("x", [None, WIDTH], "float64")
        y = static.data("y", [None, 1], "float64")
        attrs = [
            static.ParamAttr(initializer=static.initializer.NumpyArrayInitializer(value))
            for value in weights()
        ]
        hidden = layers.fc(x, 4, act="tanh", param_attr=attrs[0], bias_attr=False)
        out = layers.fc(hidden, 1, param_attr=attrs[1], bias_attr=False)
        loss = layers.mean(layers.square(out - y))
        clip = static.clip.GradientClipByGlobalNorm(LIMIT) if own_clip else None
        inner = static.optimizer.Momentum(0.5, 0.5, grad_clip=clip)
        fleet.distributed_optimizer(inner).minimize(loss, startup)
    found = []
    with static.scope_guard(static.Scope()):
        exe = static.Executor(static.CPUPlace())
        exe.run(startup)
        for update in range(UPDATES):
            for k in range(K if "gradient_merge" in settings else 1):
                a, b = part(update, k)
                exe.run(main, feed={"x": a.numpy(), "y": b.numpy()})
            held = [static.global_scope().find_var(p.name) for p in main.all_parameters()]
            read = [np.array(var.get_tensor()).ravel() for var in held]
            found.append(np.concatenate(read).tolist())
    return found


def flush():
    """A whole merge, then one part on worker 1 and two on worker 0, then a flush of nothing."""
    model, optimizer = make({**CLIP, **MERGE})
    asked, found = [], []
    for update, parts in ((0, K), (1, 2 if fleet.worker_index() == 0 else 1)):
        for k in range(parts):
            x, y = part(update, k)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            asked.append(optimizer.is_update_step)
            optimizer.step()
        found.append(values(model))
        optimizer.flush()
        found.append(values(model))
    asked.append(optimizer.is_update_step)
    optimizer.flush()
    found.append(values(model))
    return {"asked": asked, "values": found}


def own_clip(settings):
    """Return how often a script that clips gradients itself is warned."""
    model, optimizer = make(settings)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for clips in (False, True, True):
            for k in range(2):
                x, y = part(0, k)
                nn.functional.mse_loss(model(x), y).backward()
                if clips:
                    nn.utils.clip_grad_norm_(model.parameters(), 1e6)
                optimizer.step()
                optimizer.zero_grad()
    return [str(w.message) for w in caught if "gradient_clip" in str(w.message)]


def all_cases():
    result = {"modules": {}, "programs": {}}
    for name, settings in CASES.items():
        if "hierarchical" in name and fleet.worker_num() == 1:
            continue
        result["modules"][name] = train(settings)
        if "order" not in name and "amp" not in name:
            result["programs"][name] = program(settings)
    result["programs"]["own norm"] = program({}, own_clip=True)
    result["programs"]["own merge"] = program(MERGE, own_clip=True)
    result["localsgd"] = train(
        {**CLIP, **MERGE, "localsgd": True, "localsgd_configs": {"k_steps": 2, "begin_step": 0}}
    )
    result["flush"] = flush()
    result["told"] = own_clip(MERGE)
    result["not told"] = own_clip({})
    return result


def main():
    fleet.init(is_collective=True)
    result = all_cases()
    Path(sys.argv[1], f"{fleet.worker_index()}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
