"""Trains a linear layer with deep gradient compression, eager and static; each worker writes its
losses and final parameters as JSON."""

import json
import sys
from pathlib import Path

import numpy as np
import torch

from fleetx import fleet
from fleetx import static as fluid

SIZE, STEPS, BATCH = 128, 8, 8


def batches(rank, workers):
    """The same data everywhere; each worker has its share."""
    rng = np.random.default_rng(5)
    for _ in range(STEPS):
        x = rng.standard_normal((BATCH, SIZE)).astype("float32")
        y = rng.standard_normal((BATCH, SIZE)).astype("float32")
        yield x[rank::workers], y[rank::workers]


def first_weights():
    rng = np.random.default_rng(6)
    return (rng.standard_normal((SIZE, SIZE)) * 0.1).astype("float32")


def strategy_of(configs, **more):
    strategy = fleet.DistributedStrategy()
    strategy.dgc = True
    strategy.dgc_configs = configs
    for name, value in more.items():
        setattr(strategy, name, value)
    return strategy


def eager(configs, *, nesterov, decay, falls=1.0, break_at=None, **more):
    fleet.init(is_collective=True, strategy=strategy_of(configs, **more))

    def fresh():
        model = torch.nn.Linear(SIZE, SIZE)
        with torch.no_grad():
            model.weight.copy_(torch.from_numpy(first_weights().T))
            model.bias.zero_()
        inner = torch.optim.SGD(
            model.parameters(), lr=0.5, momentum=0.9, nesterov=nesterov, weight_decay=decay
        )
        return fleet.distributed_model(model), fleet.distributed_optimizer(inner)

    model, optimizer = fresh()
    losses = []
    for i, (x, y) in enumerate(batches(fleet.worker_index(), fleet.worker_num())):
        if i == break_at:
            saved = model.state_dict(), optimizer.state_dict()
            fleet.init(is_collective=True, strategy=strategy_of(configs, **more))
            model, optimizer = fresh()
            model.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
        for group in optimizer.param_groups:
            group["lr"] = 0.5 * falls**i
        loss = ((model(torch.from_numpy(x)) - torch.from_numpy(y)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {
        "losses": losses,
        "w": model.weight.detach().numpy().T.ravel().tolist(),
        "b": model.bias.detach().tolist(),
    }


def small_program():
    """A program none of whose parameters is large enough to be compressed."""
    fleet.init(is_collective=True)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.layers.data("x", [4])
        loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(x, 1)))
        inner = fluid.optimizer.Momentum(0.1, 0.9)
        fleet.distributed_optimizer(inner, strategy_of({})).minimize(loss)
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        feed = {"x": np.full((2, 4), fleet.worker_index() + 1.0, "float32")}
        return [float(exe.run(main, feed=feed, fetch_list=[loss])[0]) for _ in range(3)]


def program(configs, *, nesterov, decay, falls=1.0, **more):
    fleet.init(is_collective=True)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.layers.data("x", [SIZE])
        y = fluid.layers.data("y", [SIZE])
        out = fluid.layers.fc(
            x, SIZE, param_attr=fluid.ParamAttr(name="w"), bias_attr=fluid.ParamAttr(name="b")
        )
        loss = fluid.layers.mean(fluid.layers.square(out - y))
        rate = 0.5 if falls == 1.0 else fluid.layers.exponential_decay(0.5, 1, falls)
        inner = fluid.optimizer.Momentum(
            rate,
            0.9,
            use_nesterov=nesterov,
            regularization=fluid.regularizer.L2Decay(decay) if decay else None,
        )
        fleet.distributed_optimizer(inner, strategy_of(configs, **more)).minimize(loss)
    scope = fluid.Scope()
    losses = []
    with fluid.scope_guard(scope):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        scope.find_var("w").get_tensor().set(first_weights(), fluid.CPUPlace())
        for a, b in batches(fleet.worker_index(), fleet.worker_num()):
            losses.append(float(exe.run(main, feed={"x": a, "y": b}, fetch_list=[loss])[0]))
        w = np.array(scope.find_var("w").get_tensor())
        b = np.array(scope.find_var("b").get_tensor())
    return {"losses": losses, "w": w.ravel().tolist(), "b": b.tolist()}


CASES = {
    "keep all": ({"sparsity": [0.0]}, {"nesterov": False, "decay": 0.0}),
    "sparse": ({"sparsity": [0.99]}, {"nesterov": False, "decay": 1e-3}),
    "falling rate": (
        {"sparsity": [0.99], "keep_rate": True},
        {"nesterov": False, "decay": 1e-3, "falls": 0.7},
    ),
    "ramp": (
        {"rampup_begin_step": 2, "rampup_step": 4, "sparsity": [0.75, 0.9375]},
        {"nesterov": True, "decay": 0.0},
    ),
}


def main():
    out = {}
    for name, (configs, options) in CASES.items():
        out[f"eager {name}"] = eager(configs, **options)
        out[f"static {name}"] = program(configs, **options)
    configs, options = CASES["ramp"]
    out["eager ramp with a break"] = eager(configs, **options, break_at=5)
    out["small"] = small_program()
    try:
        eager(configs, **options, fp16_allreduce=True)
    except ValueError as error:
        out["refused"] = str(error)
    Path(sys.argv[1], f"{fleet.worker_index()}.json").write_text(json.dumps(out))


if __name__ == "__main__":
    main()
