"""Trains with amp on two workers, with overflows on one of them; eager and as a program.

Each worker writes, per case, losses, loss scales and a check sum of its parameters per step."""

import json
import sys
from pathlib import Path

import numpy as np
import torch

from fleetx import fleet
from fleetx import static as fluid

STEPS, SIZE = 9, 128
# Steps in which a worker has an infinite input, and one in which its loss is NaN.
INFINITE, WORKER = (3, 4), 1
NAN, NAN_WORKER = 7, 0
FLOAT16 = {"amp": True, "amp_configs": {"dtype": "float16"}}
CASES = {
    "float32": {},
    "amp": {"amp": True},
    "amp in bfloat16": {"amp": True, "amp_configs": {"use_pure_bf16": True}},
    "amp in float16": FLOAT16,
    "overflow": {"amp": True},
    "overflow in float16": FLOAT16,
    "overflow with localsgd": {
        **FLOAT16,
        "localsgd": True,
        "localsgd_configs": {"k_steps": 2, "begin_step": 0},
    },
    "overflow with gradient_merge": {
        **FLOAT16,
        "gradient_merge": True,
        "gradient_merge_configs": {"k_steps": 2},
    },
    "overflow with dgc": {**FLOAT16, "dgc": True, "dgc_configs": {"sparsity": [0.5]}},
}
CONFIGS = {
    "init_loss_scaling": 64.0,
    "incr_every_n_steps": 3,
    "decr_every_n_nan_or_inf": 2,
    "decr_ratio": 0.5,
}


def strategy_of(case):
    strategy = fleet.DistributedStrategy()
    strategy.amp_configs = CONFIGS
    for name, value in CASES[case].items():
        setattr(strategy, name, value)
    return strategy


def batch(case, step):
    rng = np.random.default_rng([5, fleet.worker_index(), step])
    x = rng.standard_normal((8, SIZE)).astype("float32")
    y = (x[:, :1] > 0).astype("int64")
    if "overflow" in case:
        if step in INFINITE and fleet.worker_index() == WORKER:
            x[0] = np.inf
        if step == NAN and fleet.worker_index() == NAN_WORKER:
            x[0] = np.nan
    return x, y


def weights():
    rng = np.random.default_rng(9)
    return [
        rng.standard_normal(shape).astype("float32") / 12 for shape in ((SIZE, SIZE), (SIZE, 2))
    ]


def eager(case):
    fleet.init(is_collective=True, strategy=strategy_of(case))
    model = torch.nn.Sequential(
        torch.nn.Linear(SIZE, SIZE, bias=False),
        torch.nn.Tanh(),
        torch.nn.Linear(SIZE, 2, bias=False),
    )
    for layer, value in zip((model[0], model[2]), weights(), strict=True):
        layer.weight.data = torch.from_numpy(value.T.copy())
    model = fleet.distributed_model(model)
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = fleet.distributed_optimizer(inner)
    rows = []
    for step in range(STEPS):
        x, y = batch(case, step)
        out = model(torch.from_numpy(x))
        loss = torch.nn.functional.cross_entropy(out, torch.from_numpy(y)[:, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scale = getattr(optimizer.train_step.precision, "scale", torch.ones(1)).item()
        total = sum(p.detach().double().sum().item() for p in model.parameters())
        rows.append([loss.item(), scale, total])
    return rows


def program(case):
    fleet.init(is_collective=True)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.layers.data("x", [SIZE])
        y = fluid.layers.data("y", [1], dtype="int64")
        attrs = [
            fluid.ParamAttr(initializer=fluid.initializer.NumpyArrayInitializer(value))
            for value in weights()
        ]
        hidden = fluid.layers.fc(x, SIZE, act="tanh", param_attr=attrs[0], bias_attr=False)
        out = fluid.layers.fc(hidden, 2, param_attr=attrs[1], bias_attr=False)
        loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(out, y))
        optimizer = fleet.distributed_optimizer(
            fluid.optimizer.Momentum(0.1, 0.9), strategy_of(case)
        )
        optimizer.minimize(loss)
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        scope = fluid.global_scope()
        rows = []
        for step in range(STEPS):
            a, b = batch(case, step)
            value = float(exe.run(main, feed={"x": a, "y": b}, fetch_list=[loss])[0])
            held = scope.find_var("loss_scaling_0")
            scale = 1.0 if held is None else np.array(held.get_tensor()).item()
            total = sum(
                np.array(scope.find_var(p.name).get_tensor()).astype("float64").sum()
                for p in main.all_parameters()
            )
            rows.append([value, scale, total])
    return rows


def main():
    out = Path(sys.argv[1])
    result = {case: {"eager": eager(case), "program": program(case)} for case in CASES}
    (out / f"{fleet.worker_index()}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
