"""Trains programs that are cut into stages by `device_guard`, case by case.

Each worker writes the values of the parameters of its stage at the end of each case."""

import json
import sys
from pathlib import Path

import numpy as np

from fleetx import fleet
from fleetx import static as fluid

STEPS, BATCH, WIDTH = 4, 8, 6
OPTIMIZERS = {
    "sgd": lambda: fluid.optimizer.SGD(0.1),
    "momentum": lambda: fluid.optimizer.Momentum(0.1, 0.9),
    "adam": lambda: fluid.optimizer.Adam(0.01),
    "decay": lambda: fluid.optimizer.Adam(0.01, regularization=fluid.regularizer.L2Decay(0.1)),
    "clip": lambda: fluid.optimizer.Momentum(
        0.1, 0.9, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.05)
    ),
    "clip by value": lambda: fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.ClipGradByValue(0.01)),
    "schedule": lambda: fluid.optimizer.SGD(fluid.layers.exponential_decay(0.1, 2, 0.5)),
}
EAGER, LATE = {"schedule_mode": "1F1B"}, {"schedule_mode": "F-then-B"}
# optimizer, settings of the pipeline, model, other settings
CASES = {
    **{
        f"{kind}, {mode['schedule_mode']}": (kind, {"accumulate_steps": 4, **mode}, "plain", {})
        for kind in ("sgd", "momentum", "adam")
        for mode in (EAGER, LATE)
    },
    "weight decay": ("decay", {"accumulate_steps": 2}, "plain", {}),
    "global norm": ("clip", {"accumulate_steps": 2}, "plain", {}),
    "by value": ("clip by value", {"accumulate_steps": 2}, "plain", {}),
    "schedule": ("schedule", {"accumulate_steps": 2}, "plain", {}),
    "one micro-batch": ("adam", {"accumulate_steps": 1}, "plain", {}),
    "sized": ("sgd", {"accumulate_steps": 4, "micro_batch_size": BATCH // 4}, "plain", {}),
    "skips": ("momentum", {"accumulate_steps": 4}, "skips", {}),
    "rows": ("adam", {"accumulate_steps": 2}, "rows", {}),
    "unmarked": ("sgd", {"accumulate_steps": 2}, "unmarked", {}),
    "lamb": ("adam", {"accumulate_steps": 2}, "plain", {"lamb": True}),
    "lars": ("momentum", {"accumulate_steps": 2}, "plain", {"lars": True}),
    "recomputed": ("adam", {"accumulate_steps": 4}, "plain", {"recompute": True}),
}
SAVED = "adam, 1F1B"


def batch(step, part=0, parts=1):
    rng = np.random.default_rng(step)
    x, y = rng.standard_normal((BATCH, WIDTH)), rng.standard_normal((BATCH, 1))
    ids = rng.integers(0, 9, (BATCH, 1))
    return {name: v[part::parts] for name, v in {"x": x, "y": y, "ids": ids}.items()}


def plain(guard, x, y, ids, stages):
    """Layers one after another."""
    marks = []
    for stage in range(stages):
        with guard(f"gpu:{stage}"):
            x = fluid.layers.fc(x, 7 - stage, act="tanh")
            x = fluid.layers.fc(x, 5, act="tanh")
            marks.append(x)
    with guard(f"gpu:{stages - 1}"):
        return fluid.layers.mean(fluid.layers.square(fluid.layers.fc(x, 1) - y)), marks


def skips(guard, x, y, ids, stages):
    """Every stage gets what all earlier ones have computed."""
    found = [x]
    for stage in range(stages):
        with guard(f"gpu:{stage}"):
            joined = fluid.layers.concat(found, axis=1)
            made = fluid.layers.fc(joined, 4, act="tanh")
            found.append(made + fluid.layers.fc(made, 4))
    with guard(f"gpu:{stages - 1}"):
        last = fluid.layers.fc(fluid.layers.concat(found, axis=1), 1)
        return fluid.layers.mean(fluid.layers.square(last - y)), found[1:]


def rows(guard, x, y, ids, stages):
    """The first stage looks up rows."""
    with guard("gpu:0"):
        words = fluid.layers.embedding(ids, [9, WIDTH], is_sparse=True, dtype="float64")
        x = x + fluid.layers.reshape(words, [-1, WIDTH])
    return plain(guard, x, y, ids, stages)


def unmarked(guard, x, y, ids, stages):
    """Some ops name no device, one is everywhere."""
    with guard("gpu:all"):
        half = fluid.layers.fill_constant([1], "float64", 0.5)
    loss, marks = plain(guard, fluid.layers.scale(x, 2.0) * half, y, ids, stages)
    with guard("cpu"):
        loss = fluid.layers.scale(loss, 3.0)
    return fluid.layers.elementwise_mul(loss, half), marks


MODELS = {"plain": plain, "skips": skips, "rows": rows, "unmarked": unmarked}


class Training:
    """A program in float64, and its executor."""

    def __init__(self, kind, configs, model, more, stages=2, *, pipelined=True):
        strategy = fleet.DistributedStrategy()
        if pipelined:
            strategy.pipeline, strategy.pipeline_configs = True, configs
        for name, value in more.items():
            setattr(strategy, name, value)
        fleet.init(is_collective=True, strategy=strategy)
        self.main, self.startup = fluid.Program(), fluid.Program()
        self.startup.random_seed = 5
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard():
            x = fluid.data("x", [None, WIDTH], "float64")
            y = fluid.data("y", [None, 1], "float64")
            ids = fluid.data("ids", [None, 1], "int64")
            build = model if callable(model) else MODELS[model]
            self.loss, marks = build(fluid.device_guard, x, y, ids, stages)
            if strategy.recompute:
                strategy.recompute_configs = {"checkpoints": [mark.name for mark in marks]}
            self.shapes = {p.name: p.shape for p in self.main.all_parameters()}
            self.test = self.main.clone(for_test=True)
            optimizer = fleet.distributed_optimizer(OPTIMIZERS[kind](), strategy)
            optimizer.minimize(self.loss)
        self.scope = fluid.Scope()
        self.exe = fluid.Executor(fluid.CPUPlace())
        with fluid.scope_guard(self.scope):
            self.exe.run(self.startup)
            rng = np.random.default_rng(1)
            for name, shape in self.shapes.items():
                value, own = rng.standard_normal(shape), self.scope.find_var(name)
                if own is not None:
                    own.get_tensor().set(value, None)
        self.losses = []

    def train(self, steps=range(STEPS)):
        place = fleet.data_index(), fleet.data_num()
        with fluid.scope_guard(self.scope):
            for step in steps:
                (loss,) = self.exe.run(
                    self.main, feed=batch(step, *place), fetch_list=[self.loss]
                )
                self.losses.append(None if loss is None else float(loss[0]))
        return self

    def values(self):
        return {
            p.name: np.array(self.scope.find_var(p.name).get_tensor()).tolist()
            for p in self.main.all_parameters()
        }

    def ops(self):
        return [(op.type, op.attr("op_device")) for op in self.main.global_block().ops]


def main(folder, stages):
    found = {}
    for name, (kind, configs, model, more) in CASES.items():
        training = Training(kind, configs, model, more, stages).train()
        found[name] = {
            "values": training.values(),
            "losses": training.losses,
            "ops": training.ops(),
            "startup": [op.type for op in training.startup.global_block().ops],
            "state": sorted(v.name for v in training.main.list_vars() if v.persistable),
        }
    (folder / f"{fleet.worker_index()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
