"""LocalSGD that ends between two averages: one worker saves alone, then all synchronise and save.

Each worker writes what it held and heard as JSON; the last training stays unsynchronised."""

import json
import logging
import sys
from pathlib import Path

import numpy as np
import torch

from fleetx import fleet, static
from fleetx.static import layers

folder = Path(sys.argv[1])
LOCAL = {"localsgd": True, "localsgd_configs": {"k_steps": 3, "begin_step": 0, "save_wait": 0.2}}
PATIENT = {"localsgd": True, "localsgd_configs": {"k_steps": 3, "begin_step": 0, "save_wait": 60}}
HALF = {**LOCAL, "fp16_allreduce": True}
ONE = {"localsgd": True, "localsgd_configs": {"k_steps": 3, "every_run": True}}


class Messages(logging.Handler):
    texts: list = []

    def emit(self, record):
        self.texts.append(record.getMessage())


def heard():
    texts, Messages.texts[:] = list(Messages.texts), []
    return texts


def begin(settings):
    strategy = fleet.DistributedStrategy()
    for name, value in settings.items():
        setattr(strategy, name, value)
    fleet.init(is_collective=True, strategy=strategy)


def batch(step):
    rng = np.random.default_rng([fleet.worker_index(), step])
    return rng.standard_normal((4, 3)).astype("float32")


def modules(settings, steps=5, save=None):
    begin(settings)
    torch.manual_seed(1)
    model = fleet.distributed_model(
        torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    )
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    optimizer = fleet.distributed_optimizer(inner)
    held = {}

    def values():
        return torch.cat([t.flatten().double() for t in model.state_dict().values()]).tolist()

    def train(steps):
        for step in range(steps):
            optimizer.zero_grad()
            model(torch.from_numpy(batch(step))).square().mean().backward()
            optimizer.step()

    train(steps)
    held["before"] = values()
    if save is not None:
        save()
    else:
        fleet.synchronize_model()
    held["after"] = values()
    fleet.synchronize_model()
    held["again"] = values()
    train(2)
    held["trained on"] = values()
    return held


def build(settings):
    """Return an executor, the variables of a program and functions that train it and show it."""
    begin(settings)
    torch.manual_seed(1)
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), static.unique_name.guard():
        x = static.data("x", [None, 3], "float32")
        out = layers.fc(x, 2)
        loss = layers.mean(layers.square(out))
        fleet.distributed_optimizer(static.optimizer.Momentum(0.1, 0.5)).minimize(loss, startup)
    exe = static.Executor(static.CPUPlace())
    exe.run(fleet.startup_program)
    program = fleet._origin_program if settings is ONE else fleet.main_program

    def values():
        scope = static.global_scope()
        found = [scope.find_var(p.name).get_tensor() for p in main.all_parameters()]
        return np.concatenate([np.array(t).ravel() for t in found]).astype(float).tolist()

    def train(*steps):
        for step in steps:
            exe.run(program, feed={"x": batch(step)}, fetch_list=[loss])

    return exe, main, out, train, values


def programs(settings, name):
    exe, main, out, train, values = build(settings)
    held = {}
    train(*range(5))
    held["before"] = values()
    heard()
    if fleet.is_first_worker():  # nobody else comes here
        fleet.save_persistables(exe, str(folder / f"{name} alone"))
        fleet.save_inference_model(exe, str(folder / f"{name} alone model"), ["x"], [out])
        fleet.save(str(folder / f"{name} alone again"))
    held["told"] = heard()
    fleet.synchronize_model()
    held["after"] = values()
    if fleet.is_first_worker():
        fleet.save_persistables(exe, str(folder / f"{name} synchronized"))
    held["not told"] = heard()
    static.io.load_persistables(exe, str(folder / f"{name} synchronized"), main) if (
        fleet.is_first_worker()
    ) else None
    held["loaded"] = values()
    return held


def saved_by_all(save):
    """All workers save between two averages, one of them with a delay, and train on."""
    exe, main, out, train, values = build(PATIENT)
    train(*range(5))
    heard()
    held = {"before": values()}
    where = folder / f"{save} {fleet.worker_index()}"
    if save == "persistables":
        fleet.save_persistables(exe, str(where))
    elif save == "inference_model":
        fleet.save_inference_model(exe, str(where), ["x"], [out])
    else:
        fleet.save(str(where))
    held["after"] = values()
    held["told"] = heard()
    held["files"] = sorted(path.name for path in where.iterdir()) if where.exists() else []
    if where.exists() and save != "inference_model":
        static.io.load_persistables(exe, str(where), main)
        held["loaded"] = values()
    train(5)
    held["apart again"] = values()
    train(6, 7)
    held["averaged again"] = values()
    return held


def saved_by_some(order):
    """Train with saves of single workers in between, or without; return what is held at the end."""
    exe, _, _, train, values = build(LOCAL)
    train(*range(5))
    heard()
    for rank in order:
        if fleet.worker_index() == rank:
            fleet.save_persistables(exe, str(folder / f"alone {rank}"))
        fleet.barrier_worker()  # so that the next one comes after the decision
    held = {"told": heard()}
    train(*range(5, 9))
    held["trained on"] = values()
    return held


def save_a_program():
    """Save what modules have nothing to do with: they are averaged all the same."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), static.unique_name.guard():
        layers.fc(static.data("x", [None, 3], "float32"), 2)
    exe = static.Executor(static.CPUPlace())
    exe.run(startup)
    fleet.save_persistables(exe, str(folder / f"module {fleet.worker_index()}"), main)


logging.getLogger("fleetx.fleet").addHandler(Messages())
result = {
    "modules": modules(LOCAL),
    "modules in half": modules(HALF),
    "modules, plain": modules({}),
    "programs": programs(LOCAL, "programs"),
    "programs, every_run": programs(ONE, "every_run"),
    "modules, saved": modules(PATIENT, save=save_a_program),
    **{f"all: {save}": saved_by_all(save) for save in ("persistables", "inference_model", "save")},
    "nobody": saved_by_some([]),
    "only the first": saved_by_some([0]),
    "the last is late": saved_by_some([0, 1]),
}
(folder / f"{fleet.worker_index()}.json").write_text(json.dumps(result))
logging.getLogger("fleetx.fleet").handlers.clear()
modules(LOCAL, steps=3)  # ends two updates after an average
