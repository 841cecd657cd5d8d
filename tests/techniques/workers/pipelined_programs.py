"""Trains programs that are cut into stages by `device_guard`, case by case.

Each worker writes the values of the parameters of its stage at the end of each case."""

import json
import sys
from pathlib import Path

import numpy as np

from fleetx import fleet
from fleetx import static as fluid
from fleetx.static.errors import EOFException
from fleetx.static.readers import DataLoader

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
    "rows": ("sgd", {"accumulate_steps": 2}, "rows", {}),
    "unmarked": ("sgd", {"accumulate_steps": 2}, "unmarked", {}),
    "lamb": ("adam", {"accumulate_steps": 2}, "plain", {"lamb": True}),
    "lars": ("momentum", {"accumulate_steps": 2}, "plain", {"lars": True}),
    "recomputed": ("adam", {"accumulate_steps": 4}, "plain", {"recompute": True}),
}
SAVED = "adam, 1F1B"
BFLOAT16 = {"amp": True, "amp_configs": {"dtype": "bfloat16"}}


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
            made = fluid.layers.fc(joined, 4, act="tanh")  # used here and on later stages
            found.append(made)
            found.append(fluid.layers.tanh(made + fluid.layers.fc(made, 4)))
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
                (loss,) = self.exe.run(self.main, feed=batch(step, *place), fetch_list=[self.loss])
                self.losses.append(None if loss is None else float(loss[0]))
        return self

    def values(self):
        return {
            p.name: np.array(self.scope.find_var(p.name).get_tensor()).tolist()
            for p in self.main.all_parameters()
        }

    def ops(self):
        return [(op.type, op.attr("op_device")) for op in self.main.global_block().ops]


def saved_and_resumed(folder):
    """Return what a training reaches that all workers have saved and that goes on elsewhere."""
    arguments = CASES[SAVED]
    first = Training(*arguments).train(range(2))
    with fluid.scope_guard(first.scope):
        fleet.save_persistables(first.exe, str(folder / "saved"), first.main)
    refused = [
        message(lambda: fleet.save_persistables(first.exe, "none", first.main, filename="all")),
        message(lambda: fleet.save_inference_model(first.exe, "none", ["x"], [first.loss])),
    ]
    fleet.util.barrier()
    second = Training(*arguments)
    with fluid.scope_guard(second.scope):
        fluid.io.load_persistables(second.exe, str(folder / "saved"), second.main)
    return {"values": second.train(range(2, STEPS)).values(), "refused": refused}


def fetched():
    """Return what a run returns of several kinds of variables, and a run without updates."""
    training = Training(*CASES["sgd, 1F1B"])
    names = [training.loss.name, "fc_3.tmp_2", "fc_0.w_0", "fc_0.w_0@GRAD", "x"]
    evaluation = training.main.clone(for_test=True)
    with fluid.scope_guard(training.scope):
        (loss,) = training.exe.run(evaluation, feed=batch(0), fetch_list=[training.loss])
        values = training.exe.run(training.main, feed=batch(0), fetch_list=names)
    as_lists = [None if value is None else np.asarray(value).tolist() for value in values]
    return {"evaluated": None if loss is None else float(loss[0]), "values": as_lists}


def read():
    """Return the parameters after training from a reader of micro-batches."""
    kind, configs, _, more = CASES["momentum, 1F1B"]
    loaders = []

    def build(guard, x, y, ids, stages):
        loaders.append(DataLoader.from_generator([x, y], capacity=4, iterable=False))
        return plain(guard, x, y, ids, stages)

    training = Training(kind, configs, build, more)
    count = configs["accumulate_steps"]

    def micro_batches():
        for step in range(STEPS):
            whole = batch(step)
            yield from zip(*(np.split(whole[name], count) for name in ("x", "y")), strict=True)

    loaders[0].set_batch_generator(micro_batches)
    loaders[0].start()
    with fluid.scope_guard(training.scope):
        for _ in range(STEPS):
            training.exe.run(training.main, fetch_list=[training.loss])
    ended = False
    try:
        with fluid.scope_guard(training.scope):
            training.exe.run(training.main)
    except EOFException:
        ended = True
    return {"values": training.values(), "ended": ended}


def shared(guard, x, y, ids, stages):
    """Two stages use one parameter."""
    attr = fluid.ParamAttr(name="both")
    for stage in range(stages):
        with guard(f"gpu:{stage}"):
            x = fluid.layers.fc(x, WIDTH, param_attr=attr, bias_attr=False)
    return fluid.layers.mean(x), []


def backwards(guard, x, y, ids, stages):
    """An early stage needs what a later one computes."""
    for stage in (1, 0):
        with guard(f"gpu:{stage}"):
            x = fluid.layers.fc(x, WIDTH)
    return fluid.layers.mean(x), []


def sequences(guard, x, y, ids, stages):
    """Samples have different lengths."""
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    with guard("gpu:0"):
        table = fluid.layers.embedding(words, [9, WIDTH], dtype="float64")
        x = x + fluid.layers.sequence_pool(table, "sum")
    return plain(guard, x, y, ids, stages)


def frozen(guard, x, y, ids, stages):
    """The first stage trains nothing."""
    with guard("gpu:0"):
        x = fluid.layers.scale(x, 2.0)
        x.stop_gradient = True
    with guard("gpu:1"):
        return fluid.layers.mean(fluid.layers.fc(x, 1)), []


def unmarked_all(guard, x, y, ids, stages):
    """No layer names a device."""
    return fluid.layers.mean(fluid.layers.fc(x, 1)), []


def message(run):
    """Return the sentence with which something is refused."""
    try:
        run()
    except (ValueError, TypeError) as error:
        return str(error)
    return ""


def refused(kind="sgd", configs=None, model="plain", **more):
    configs = {"accumulate_steps": 2} if configs is None else configs
    return message(lambda: Training(kind, configs, model, more))


def refusals():
    half = {"amp": True, "amp_configs": {"dtype": "float16"}}
    clip = {"gradient_clip": True, "gradient_clip_configs": {"norm": 1.0}}
    rank = fleet.worker_index()
    two = Training(*CASES["sized"])
    with fluid.scope_guard(two.scope):
        feeds = {
            "odd": {name: value[:5] for name, value in batch(0).items()},
            "small": {name: value[:4] for name, value in batch(0).items()},
            "different": batch(rank),
        }
        fed = {
            name: message(lambda feed=feed: two.exe.run(two.main, feed=feed))
            for name, feed in feeds.items()
        }
        build = fluid.BuildStrategy()
        build.enable_auto_fusion = True
        compiled = fluid.CompiledProgram(two.main, build_strategy=build)
        fed["compiled"] = message(lambda: two.exe.run(compiled, feed=batch(0)))
    return {
        **fed,
        "merged": refused(gradient_merge=True, gradient_merge_configs={"k_steps": 2}),
        "sharding": refused(sharding=True),
        "half": refused(**half),
        "localsgd": refused(localsgd=True),
        "dgc": refused("momentum", dgc=True),
        "stop_on_nan": refused(stop_on_nan=True),
        "clip": refused(**clip),
        "VPP": refused(configs={"schedule_mode": "VPP", "accumulate_steps": 2}),
        "stages": refused(configs={"stages": ["fc_1"]}),
        "shared": refused(model=shared),
        "backwards": refused(model=backwards),
        "sequences": refused(model=sequences),
        "frozen": refused(model=frozen),
        "no device": refused(model=unmarked_all),
        "devices": refused(model=unmarked_all, hybrid_configs={"pp_degree": 2}),
    }


def main(folder, stages, names):
    found = {"cases": {}}
    for name in names or CASES:
        kind, configs, model, more = CASES[name]
        training = Training(kind, configs, model, more, stages).train()
        found["cases"][name] = {
            "values": training.values(),
            "losses": training.losses,
            "ops": training.ops(),
            "startup": [op.type for op in training.startup.global_block().ops],
            "sent": fleet.explain().bytes_sent,
            "state": sorted(v.name for v in training.main.list_vars() if v.persistable),
        }
    if not names:
        found["bfloat16"] = (
            Training("sgd", {"accumulate_steps": 2}, "plain", BFLOAT16).train().losses
        )
        found["saved"] = saved_and_resumed(folder)
        found["fetched"] = fetched()
        found["read"] = read()
        found["refused"] = refusals()
    (folder / f"{fleet.worker_index()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
