"""Trains programs whose optimizer state is divided between workers; each worker has its part of a
batch, and writes its parameters at the end of each case."""

import json
import sys
from pathlib import Path

import numpy as np

from fleetx import fleet
from fleetx import static as fluid

STEPS, BATCH, WIDTH = 4, 8, 6
OPTIMIZERS = {
    "sgd": lambda **more: fluid.optimizer.SGD(0.1, **more),
    "momentum": lambda **more: fluid.optimizer.Momentum(0.1, 0.9, **more),
    "adam": lambda **more: fluid.optimizer.Adam(0.01, **more),
    "decay": lambda **more: fluid.optimizer.Adam(
        0.01, regularization=fluid.regularizer.L2Decay(0.1), **more
    ),
    "clip": lambda **more: fluid.optimizer.Momentum(
        0.1, 0.9, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.05), **more
    ),
}
MERGE = {"gradient_merge": True, "gradient_merge_configs": {"k_steps": 2}}
RECOMPUTE = {"recompute": True, "recompute_configs": {"checkpoints": ["hidden"]}}
CASES = {
    "stage 1, sgd": (1, "sgd", {}),
    "stage 1, momentum": (1, "momentum", {}),
    "stage 1, adam": (1, "adam", {}),
    "stage 1, decay": (1, "decay", {}),
    "stage 1, clip": (1, "clip", {}),
    "stage 1, merged": (1, "adam", MERGE),
    "stage 1, recomputed": (1, "adam", RECOMPUTE),
    "stage 1, lamb": (1, "adam", {"lamb": True}),
    "stage 2, momentum": (2, "momentum", {}),
    "stage 2, adam": (2, "adam", {}),
    "stage 2, decay": (2, "decay", {}),
    "stage 2, merged": (2, "adam", MERGE),
    "stage 2, recomputed": (2, "adam", RECOMPUTE),
    "stage 2, lars": (2, "momentum", {"lars": True}),
}
SAVED = "stage 2, adam"


def batch(step, worker=0, workers=1):
    rng = np.random.default_rng(step)
    x, y = rng.standard_normal((BATCH, WIDTH)), rng.standard_normal((BATCH, 1))
    return {"x": x[worker::workers], "y": y[worker::workers]}


class Training:
    """A program in float64, and its executor."""

    def __init__(self, settings, kind):
        strategy = fleet.DistributedStrategy()
        for name, value in settings.items():
            setattr(strategy, name, value)
        fleet.init(is_collective=True, strategy=strategy)
        self.main, self.startup = fluid.Program(), fluid.Program()
        self.startup.random_seed = 5
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard():
            x = fluid.data("x", [None, WIDTH], "float64")
            y = fluid.data("y", [None, 1], "float64")
            hidden = fluid.layers.fc(x, 7, act="tanh", name="first")
            hidden = self.main.global_block().var(hidden.name)
            copied = fluid.layers.scale(hidden, name="hidden")
            found = fluid.layers.fc(fluid.layers.fc(copied, 5, act="tanh"), 1)
            self.loss = fluid.layers.mean(fluid.layers.square(found - y))
            if "recompute_configs" in settings:
                strategy.recompute_configs = {"checkpoints": [copied.name]}
            optimizer = fleet.distributed_optimizer(OPTIMIZERS[kind](), strategy)
            optimizer.minimize(self.loss)
        self.scope = fluid.Scope()
        self.run_startup()

    def run_startup(self):
        self.exe = fluid.Executor(fluid.CPUPlace())
        with fluid.scope_guard(self.scope):
            self.exe.run(self.startup)
            rng = np.random.default_rng(1)
            for p in self.main.all_parameters():
                self.scope.find_var(p.name).get_tensor().set(rng.standard_normal(p.shape), None)

    def train(self, steps=range(STEPS)):
        place = fleet.worker_index(), fleet.worker_num()
        with fluid.scope_guard(self.scope):
            for step in steps:
                self.exe.run(self.main, feed=batch(step, *place), fetch_list=[self.loss])
        return self

    def values(self):
        return {
            p.name: np.array(self.scope.find_var(p.name).get_tensor()).tolist()
            for p in self.main.all_parameters()
        }

    def ops(self):
        return [op.type for block in self.main.blocks for op in block.ops]

    def state(self):
        return [v.name for v in self.main.list_vars() if v.persistable and "moment" in v.name]


def sharded(stage, more):
    return {"sharding": True, "sharding_configs": {"stage": stage}, **more}


def saved_and_resumed(folder):
    """Return what a training reaches that was saved by all workers and goes on elsewhere."""
    stage, kind, more = CASES[SAVED]
    first = Training(sharded(stage, more), kind).train(range(2))
    with fluid.scope_guard(first.scope):
        fleet.save_persistables(first.exe, str(folder / "saved"), first.main)
    refused = ""
    try:
        fleet.save_persistables(first.exe, str(folder / "saved"), first.main, filename="all")
    except ValueError as error:
        refused = str(error)
    fleet.util.barrier()
    second = Training(sharded(stage, more), kind)
    with fluid.scope_guard(second.scope):
        fluid.io.load_persistables(second.exe, str(folder / "saved"), second.main)
    return {"values": second.train(range(2, STEPS)).values(), "refused": refused}


def refusal(settings, kind="adam"):
    try:
        Training(settings, kind)
    except ValueError as error:
        return str(error)
    return ""


def refusals():
    return {
        "stage 3": refusal(sharded(3, {})),
        "clip": refusal(sharded(2, {}), "clip"),
        "amp": refusal(sharded(2, {"amp": True, "amp_configs": {"dtype": "float16"}})),
        "localsgd": refusal(sharded(1, {"localsgd": True})),
        "copies": refusal({"sharding": True, "sharding_configs": {"sharding_degree": 1}}),
    }


def main():
    folder = Path(sys.argv[1])
    result = {"values": {}, "ops": {}, "state": {}}
    for name, (stage, kind, more) in CASES.items():
        training = Training(sharded(stage, more), kind).train()
        result["values"][name] = training.values()
        result["ops"][name] = training.ops()
        result["state"][name] = training.state()
    result["saved"] = saved_and_resumed(folder)
    result["refusals"] = refusals()
    (folder / f"{fleet.worker_index()}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
