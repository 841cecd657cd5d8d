"""Trains one network as a module and as a program, with every technique and every legal pair and
triple of them, from the same parameters on the same batches.

Both front ends call the same kernels of PyTorch in forward and backward, so that what they
disagree on would be the work of a technique. Each worker writes, per combination, the refusal or
what differs, and a few results that say what was trained."""

import itertools
import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from composition import SETTINGS as SETTINGS_OF_COMPOSITION
from composition import SIZE

from fleetx import fleet
from fleetx import static as fluid
from fleetx.static.optimizer.optimizers_of_2x import Adam as AdamOf2x

STEPS, OUT, ROWS = 20, 4, 4
OVERFLOW = (6, 7)
"""Steps whose batch overflows in half precision, on the last worker only."""
OFFSET = 0.5
"""Taken off the loss, so that it changes its sign during the training."""
NAMES = ("w0", "b0", "w1", "b1")

# The loss is computed in single precision in both. The first scale is about as large as float16
# allows, so that what overflows depends on every factor in the backward pass.
AMP = {
    "custom_black_list": ["elementwise_sub"],
    "init_loss_scaling": 2.0**17,
    "incr_every_n_steps": 5,
    "decr_ratio": 0.5,
}
FIXED = {**AMP, "dtype": "float16", "use_dynamic_loss_scaling": False}
OUTER = {"outer_momentum": 0.5, "outer_lr": 0.7, "outer_nesterov": True}
SETTINGS = {
    **SETTINGS_OF_COMPOSITION,
    "amp": {"amp_configs": {**AMP, "dtype": "float16"}},
    "localsgd": {"localsgd_configs": {"k_steps": 3, **OUTER}},
    "adaptive_localsgd": {"adaptive_localsgd_configs": {"init_k_steps": 3, **OUTER}},
    "gradient_clip": {"gradient_clip_configs": {"norm": 0.5}},
}
MORE = {
    "bfloat16": ("amp", {"amp_configs": {**AMP, "dtype": "bfloat16"}}),
    "bfloat16 scaled": ("amp", {"amp_configs": {**AMP, "dtype": "auto"}}),
    "largest scale": ("amp", {"amp_configs": FIXED}),
    "small scale": ("amp", {"amp_configs": {**FIXED, "init_loss_scaling": 2.0}}),
    "no scale": ("amp", {"amp_configs": {**FIXED, "init_loss_scaling": 1.0}}),
    "scale of no power of two": ("amp", {"amp_configs": {**AMP, "decr_ratio": 0.7}}),
    "clip by value": ("gradient_clip", {"gradient_clip_configs": {"value": 0.01}}),
    "sum of merged": ("gradient_merge", {"gradient_merge_configs": {"k_steps": 3, "avg": False}}),
    "mean of three": ("gradient_merge", {"gradient_merge_configs": {"k_steps": 3}}),
    "dgc with rates": (
        "dgc",
        {
            "dgc_configs": {
                "rampup_begin_step": 3,
                "rampup_step": 4,
                "sparsity": [0.5, 0.9],
                "keep_rate": True,
                "local_clip_norm": 0.5,
            }
        },
    ),
    "without feedback": ("signsgd", {"signsgd_configs": {"error_feedback": False}}),
    "plain average": ("localsgd", {"localsgd_configs": {"k_steps": 3}}),
    "plain adaptive average": (
        "adaptive_localsgd",
        {"adaptive_localsgd_configs": {"init_k_steps": 3}},
    ),
    "averaged momentum": (
        "localsgd",
        {"localsgd_configs": {"k_steps": 3, "average_momentum": True, **OUTER}},
    ),
    "messages in bfloat16": ("fp16_allreduce amp", {"fp16_allreduce_dtype": "bfloat16"}),
    "merged messages": ("gradient_merge amp fp16_allreduce", SETTINGS["gradient_merge"]),
    "finite loss": ("stop_on_nan", {}),
}
"""Further settings of the first technique."""
OPTIMIZERS = {
    "sgd": (lambda p: torch.optim.SGD(p, lr=0.02), lambda: fluid.optimizer.SGD(0.02)),
    "momentum": (
        lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9),
        lambda: fluid.optimizer.Momentum(0.02, 0.9),
    ),
    "adam": (lambda p: torch.optim.Adam(p, lr=1e-3), lambda: fluid.optimizer.Adam(1e-3)),
    "adam of 2.x": (lambda p: torch.optim.Adam(p, lr=1e-3), lambda: AdamOf2x(1e-3)),
}


class Case(NamedTuple):
    names: tuple[str, ...] = ()
    settings: dict[str, Any] = {}
    kind: str = "momentum"
    rooted: bool = False
    """Whether the loss has a root in it, whose gradient becomes NaN and its value not."""

    @property
    def overflows(self) -> bool:
        """Whether a smaller loss scale may help against an overflow."""
        return (
            "amp" in self.names and self.settings["amp"]["amp_configs"].get("dtype") != "bfloat16"
        )


def combinations():
    return [names for size in (1, 2, 3) for names in itertools.combinations(SETTINGS, size)]


def cases():
    found = {kind: Case(kind=kind) for kind in OPTIMIZERS}
    for key, (text, own) in MORE.items():
        names = tuple(text.split())
        found[key] = Case(names, {**SETTINGS, names[0]: own}, rooted=key == "finite loss")
    for names in combinations():
        kind = "adam" if "lamb" in names else "sgd" if "demo" in names else "momentum"
        found[" ".join(names)] = Case(names, SETTINGS, kind)
    return found


def first_parameters():
    rng = np.random.default_rng(3)
    shapes = {"w0": (SIZE, SIZE), "b0": (SIZE,), "w1": (SIZE, OUT), "b1": (OUT,)}
    return {
        name: (rng.standard_normal(shape) / SIZE**0.5).astype("float32")
        for name, shape in shapes.items()
    }


def batch(step, case):
    """Return a batch of this worker's: of fewer rows now and then, too large for half precision in
    some steps with a loss scale, and with a NaN after the last step."""
    last = fleet.worker_index() == fleet.worker_num() - 1
    rng = np.random.default_rng([7, fleet.worker_index(), step])
    rows = ROWS - 1 - fleet.worker_index() if step % 5 == 4 else ROWS
    x = rng.standard_normal((rows, SIZE)).astype("float32")
    y = np.tanh(x[:, :OUT])
    if last and case.overflows and step in OVERFLOW:
        x *= np.float32(1e30)
    z = np.ones((rows, 1), "float32")
    if last and step == STEPS:
        if case.rooted:
            z[:] = 0  # the root of a sum of zeros: its derivative is 0 / 0
        else:
            x[0, 0] = np.nan
    return x, y, z


def strategy_of(case):
    strategy = fleet.DistributedStrategy()
    for name in case.names:
        setattr(strategy, name, True)
        for group, values in case.settings[name].items():
            setattr(strategy, group, values)
    return strategy


class Hidden(torch.nn.Module):
    """What recompute computes again."""

    def forward(self, x, w, b):
        return torch.addmm(b, x, w).relu()


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name, value in first_parameters().items():
            setattr(self, name, torch.nn.Parameter(torch.from_numpy(value)))
        self.hidden = Hidden()

    def forward(self, x):
        return torch.addmm(self.b1, self.hidden(x, self.w0, self.b0), self.w1)


def module(case):
    strategy = strategy_of(case)
    if "recompute" in case.names:
        strategy.recompute_configs = {"checkpoints": ["hidden"]}
    fleet.init(is_collective=True, strategy=strategy)
    model = Network()
    make, _ = OPTIMIZERS[case.kind]
    optimizer = fleet.distributed_optimizer(make(model.parameters()))
    model = fleet.distributed_model(model)

    def step(x, y, z):
        out = model(torch.from_numpy(x))
        loss = (out - torch.from_numpy(y)).square().mean() - OFFSET
        if case.rooted:
            loss = loss + (out * torch.from_numpy(z)).square().mean().sqrt()
        optimizer.minimize(loss)
        return loss.detach().numpy()

    def parameters():
        return {name: getattr(model, name).detach().numpy() for name in NAMES}

    return step, parameters


def program(case):
    strategy = strategy_of(case)
    fleet.init(is_collective=True)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.layers.data("x", [SIZE])
        y = fluid.layers.data("y", [OUT])
        z = fluid.layers.data("z", [1])
        named = [
            {
                "param_attr": fluid.ParamAttr(name=f"w{i}"),
                "bias_attr": fluid.ParamAttr(name=f"b{i}"),
            }
            for i in (0, 1)
        ]
        hidden = fluid.layers.fc(x, SIZE, act="relu", **named[0])
        out = fluid.layers.fc(hidden, OUT, **named[1])
        loss = fluid.layers.mean(fluid.layers.square(out - y)) - OFFSET
        if case.rooted:
            root = fluid.layers.sqrt(fluid.layers.mean(fluid.layers.square(out * z)))
            loss = loss + root
        if "recompute" in case.names:
            strategy.recompute_configs = {"checkpoints": [hidden.name]}
        _, make = OPTIMIZERS[case.kind]
        fleet.distributed_optimizer(make(), strategy).minimize(loss)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    exe.run(startup, scope=scope)
    for name, value in first_parameters().items():
        for var in (name, name + "@SNAPSHOT"):
            if scope.find_var(var) is not None:
                scope.find_var(var).get_tensor().set(value, fluid.CPUPlace())

    def step(x, y, z):
        feed = {"x": x, "y": y, "z": z} if case.rooted else {"x": x, "y": y}
        return exe.run(main, feed=feed, fetch_list=[loss], scope=scope)[0]

    def parameters():
        return {name: np.array(scope.find_var(name).get_tensor()) for name in NAMES}

    return step, parameters


def train(front_end, case):
    """Return the parameters after each step, the losses, and the error that ended the training."""
    step, parameters = front_end(case)
    history, losses = [], []
    for i in range(STEPS + 1):
        try:
            losses.append(np.array(step(*batch(i, case))).reshape(()))
        except FloatingPointError as error:
            return history, losses, str(error)
        history.append({name: value.copy() for name, value in parameters().items()})
    return history, losses, ""


def same(a, b):
    return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=True)


def cause(text):
    """Return what an error says about the origin of a NaN: what, in which step, on which worker."""
    found = re.match(
        r"(the loss|the gradient of '\w+')( of all workers together)? became infinite or NaN "
        r"in step (\d+)(?: on (worker \d+))?",
        text,
    )
    return found.groups() if found else text


def compare(case):
    ours, losses, error = train(module, case)
    theirs, other_losses, other_error = train(program, case)
    result = {"losses": [float(x) for x in losses], "causes": [cause(error), cause(other_error)]}
    result["total"] = sum(float(ours[STEPS - 1][name].sum(dtype="float64")) for name in NAMES)
    result["skipped"] = [
        step
        for step in range(1, len(losses))
        if all(same(ours[step][name], ours[step - 1][name]) for name in NAMES)
    ]
    differing = [
        step
        for step in range(len(losses))
        if not all(same(ours[step][name], theirs[step][name]) for name in NAMES)
        or not same(losses[step], other_losses[step])
    ]
    if differing:
        result["differs from step"] = differing[0]
        result["distance"] = max(
            float(np.max(np.abs(ours[STEPS - 1][name] - theirs[STEPS - 1][name]))) for name in NAMES
        )
    return result


def main():
    results = {}
    # Triples or all others, and which of their parts this run is to compare.
    triples, part, parts = sys.argv[2] == "triples", int(sys.argv[3]), int(sys.argv[4])
    every = [
        (key, case)
        for key, case in cases().items()
        if triples == (len(case.names) == 3 and key == " ".join(case.names))
    ]
    for key, case in every[part::parts]:
        try:
            results[key] = compare(case)
        except ValueError as error:
            results[key] = {"refused": str(error)}
    Path(sys.argv[1], f"{fleet.worker_index()}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
