"""Trains with `auto`, eager and static, and again with the strategy that was chosen and no search.

Each worker writes losses, choices and random numbers drawn afterwards as JSON."""

import json
import sys
from pathlib import Path

import numpy as np
import torch

from fleetx import fleet
from fleetx import static as fluid

STEPS = 4


def strategy_of(**settings):
    strategy = fleet.DistributedStrategy()
    strategy.recompute_configs = {"checkpoints": settings.pop("checkpoints")}
    for name, value in settings.items():
        setattr(strategy, name, value)
    return strategy


def eager(strategy):
    fleet.init(is_collective=True, strategy=strategy)
    torch.manual_seed(4)
    model = torch.nn.Sequential(
        torch.nn.Linear(40, 64), torch.nn.BatchNorm1d(64), torch.nn.Dropout(0.3),
        torch.nn.Linear(64, 4),
    )  # fmt: skip
    model = fleet.distributed_model(model)
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = fleet.distributed_optimizer(inner)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    losses = []
    for _ in range(STEPS):
        x, y = torch.randn(8, 40), torch.randint(0, 4, (8,))
        loss = torch.nn.functional.cross_entropy(model(x).float(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses, {k: v.flatten().tolist() for k, v in model.state_dict().items()}


def program(strategy):
    fleet.init(is_collective=True)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        main.random_seed = startup.random_seed = 2
        x = fluid.layers.data("x", [40])
        y = fluid.layers.data("y", [1], dtype="int64")
        hidden = fluid.layers.fc(x, 64, act="relu", name="hidden")
        out = fluid.layers.fc(hidden, 4)
        loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(out, y))
        rate = fluid.layers.piecewise_decay([2], [0.1, 0.05])
        fleet.distributed_optimizer(fluid.optimizer.Momentum(rate, 0.9), strategy).minimize(loss)
    losses = []
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        rng = np.random.default_rng(3 + fleet.worker_index())
        for _ in range(STEPS):
            feed = {
                "x": rng.standard_normal((8, 40)).astype("float32"),
                "y": rng.integers(0, 4, (8, 1)).astype("int64"),
            }
            losses.append(float(exe.run(main, feed=feed, fetch_list=[loss])[0]))
        scope = fluid.global_scope()
        names = [p.name for p in main.all_parameters()]
        values = {n: np.array(scope.find_var(n).get_tensor()).ravel().tolist() for n in names}
    return losses, values


def large(strategy):
    """Train a model of 32 MB, which with gradients and Adam's state is one of 128 MB."""
    fleet.init(is_collective=True, strategy=strategy)
    torch.manual_seed(4)
    layers = torch.nn.Sequential(*(torch.nn.Linear(2000, 2000, bias=False) for _ in range(2)))
    model = fleet.distributed_model(layers)
    optimizer = fleet.distributed_optimizer(torch.optim.Adam(model.parameters(), lr=0.001))
    torch.manual_seed(fleet.worker_index())
    for _ in range(2):
        optimizer.zero_grad()
        loss = model(torch.randn(2, 2000)).float().square().mean()
        loss.backward()
        optimizer.step()
    state = model.state_dict()  # all workers must ask for it
    return [loss.item(), *(float(value.double().square().sum()) for value in state.values())]


def limited(out):
    """Search with little memory, and train with what was found."""
    file = str(out / "limited.choice")
    # Nothing else to choose from, so that every stage is tried.
    fixed = {"checkpoints": [], "fp16_allreduce": True, "fuse_grad_size_in_MB": 32}
    fixed |= {"amp": True, "amp_configs": {"dtype": "bfloat16"}}
    configs = {"steps": 1, "file": file, "worker_memory_mb": 120}
    found = large(strategy_of(auto=True, auto_configs=configs, **fixed))
    fleet.barrier_worker()
    kept = json.loads(Path(file).read_text())
    plain = large(strategy_of(**fixed, **kept["changes"]))
    return {"found": found, "plain": plain, "choice": kept["name"], "tried": kept["tried"]}


def main():
    out = Path(sys.argv[1])
    result = {}
    for name, train, checkpoint in (("eager", eager, "0"), ("static", program, "hidden.tmp_2")):
        file = str(out / f"{name}.choice")
        more = ["gradient_merge"] if name == "eager" else []
        configs = {"steps": 1, "file": file, "techniques": more}
        merge = {"k_steps": 2}
        settings = {"checkpoints": [checkpoint], "gradient_merge_configs": merge}
        searched = train(strategy_of(auto=True, auto_configs=configs, **settings))
        applied = fleet._get_applied_meta_list()
        fleet.barrier_worker()
        kept = json.loads(Path(file).read_text())
        known = train(strategy_of(auto=True, auto_configs=configs, **settings))
        plain = train(strategy_of(**settings, **kept["changes"]))
        result[name] = {
            "same": searched == known == plain,
            "losses": [searched[0], known[0], plain[0]],
            "applied": applied,
            "choice": kept["name"],
            "tried": kept["tried"],
            "auto": fleet._final_strategy().auto,
        }
    # Little else to choose from, so that all intervals are tried.
    local = {"techniques": ["localsgd"], "steps": 1, "file": str(out / "local.choice")}
    eager(strategy_of(checkpoints=[], auto=True, auto_configs=local, amp=True, fp16_allreduce=True))
    fleet.barrier_worker()
    kept = json.loads(Path(local["file"]).read_text())
    result["local"] = {row["name"]: row["seconds"] for row in kept["tried"]}
    small = strategy_of(checkpoints=[], auto=True, auto_configs={"memory_limit_mb": 1})
    fleet.init(is_collective=True, strategy=small)
    model = fleet.distributed_model(torch.nn.Linear(32, 4000))
    fleet.distributed_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    try:
        model(torch.randn(2000, 32))  # whose outputs are 32 MB
    except RuntimeError as error:
        result["too small"] = str(error)
    result["limited"] = limited(out)
    try:
        program(strategy_of(checkpoints=[], auto=True, auto_configs={"worker_memory_mb": 1}))
    except RuntimeError as error:
        result["of a program"] = str(error)
    (out / f"{fleet.worker_index()}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
