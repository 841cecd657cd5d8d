"""Trains a network with compressed gradients, eager and static, alone and in combinations; each
worker writes its final parameters and what it keeps as JSON."""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from adaptive_clip import AdaptiveClip
from eight_bits import EightBits
from slow_weights import SlowWeights

from fleetx import fleet
from fleetx import static as fluid

SIZE, OUT, STEPS, ROWS = 10, 3, 20, 8
CASES = {
    "signsgd": {"signsgd": True},
    "no feedback": {"signsgd": True, "signsgd_configs": {"error_feedback": False}},
    "amp": {"signsgd": True, "amp": True, "amp_configs": {"dtype": "float16"}},
    "merge": {
        "signsgd": True,
        "gradient_merge": True,
        "gradient_merge_configs": {"k_steps": 2},
    },
    "clip": {"signsgd": True, "gradient_clip": True, "gradient_clip_configs": {"norm": 0.1}},
    "demo": {"demo": True, "demo_configs": {"top_k": 5, "block": 4, "decay": 0.9}},
    "demo, values": {"demo": True, "demo_configs": {"top_k": 2, "block": 8, "sign": False}},
    "demo, merge": {
        "demo": True,
        "gradient_merge": True,
        "gradient_merge_configs": {"k_steps": 2},
    },
    "own": {"eight_bits": True},
    "own, amp, merge": {
        "eight_bits": True,
        "amp": True,
        "amp_configs": {"dtype": "bfloat16"},
        "gradient_merge": True,
        "gradient_merge_configs": {"k_steps": 2},
    },
}
STAGES = {
    "slow": {"slow_weights": True, "slow_weights_configs": {"k_steps": 3}},
    "adaptive": {"adaptive_clip": True, "adaptive_clip_configs": {"share": 0.1}},
    "slow, adaptive, own, merge": {
        "slow_weights": True,
        "slow_weights_configs": {"k_steps": 3},
        "adaptive_clip": True,
        "eight_bits": True,
        "gradient_merge": True,
        "gradient_merge_configs": {"k_steps": 2},
    },
    "slow, amp": {"slow_weights": True, "amp": True, "amp_configs": {"dtype": "bfloat16"}},
}
"""Techniques of the examples whose stages are a param_sync and a clip."""


def batches(rank):
    rng = np.random.default_rng(rank)
    for _ in range(STEPS):
        x = rng.standard_normal((ROWS, SIZE)).astype("float32")
        yield x, (x @ np.arange(SIZE * OUT).reshape(SIZE, OUT) / 10).astype("float32")


def first_weights():
    return (np.random.default_rng(6).standard_normal((SIZE, OUT)) * 0.1).astype("float32")


def strategy_of(switches):
    strategy = fleet.DistributedStrategy()
    for name, value in switches.items():
        setattr(strategy, name, value)
    return strategy


class Layer(torch.nn.Module):
    """A linear layer with its weights laid out as in programs."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.from_numpy(first_weights()))
        self.b = torch.nn.Parameter(torch.zeros(OUT))

    def forward(self, x):
        return x @ self.w + self.b


def eager(switches, break_at=None):
    fleet.init(is_collective=True, strategy=strategy_of(switches))

    def fresh():
        model = Layer()
        inner = torch.optim.SGD(model.parameters(), lr=0.05)
        return fleet.distributed_model(model), fleet.distributed_optimizer(inner)

    model, optimizer = fresh()
    for i, (x, y) in enumerate(batches(fleet.worker_index())):
        if i == break_at:
            saved = model.state_dict(), optimizer.state_dict()
            fleet.init(is_collective=True, strategy=strategy_of(switches))
            model, optimizer = fresh()
            model.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
        loss = ((model(torch.from_numpy(x)) - torch.from_numpy(y)) ** 2).mean()
        optimizer.minimize(loss)
    explained = fleet.fleet._explanation()
    return {
        "w": model.w.detach().ravel().tolist(),
        "b": model.b.detach().tolist(),
        "bytes": explained.bytes_sent,
    }


def program(switches, break_at=None):
    fleet.init(is_collective=True)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.layers.data("x", [SIZE])
        y = fluid.layers.data("y", [OUT])
        out = fluid.layers.fc(
            x, OUT, param_attr=fluid.ParamAttr(name="w"), bias_attr=fluid.ParamAttr(name="b")
        )
        loss = fluid.layers.mean(fluid.layers.square(out - y))
        inner = fluid.optimizer.SGD(0.05)
        fleet.distributed_optimizer(inner, strategy_of(switches)).minimize(loss)
    kinds = [op.type for block in main.blocks for op in block.ops]
    exe = fluid.Executor(fluid.CPUPlace())
    scope = fluid.Scope()
    exe.run(startup, scope=scope)
    scope.find_var("w").get_tensor().set(first_weights(), fluid.CPUPlace())
    for i, (x, y) in enumerate(batches(fleet.worker_index())):
        if i == break_at:
            saved, scope = persistables(main, scope), fluid.Scope()
            exe.run(startup, scope=scope)
            for name, value in saved.items():
                scope.find_var(name).get_tensor().set(value, fluid.CPUPlace())
        exe.run(main, feed={"x": x, "y": y}, fetch_list=[loss], scope=scope)
    kept = persistables(main, scope)
    return {
        "w": kept["w"].ravel().tolist(),
        "b": kept["b"].tolist(),
        "kinds": kinds,
        "residuals": {n: kept[n].ravel().tolist() for n in sorted(kept) if "@RESIDUAL" in n},
    }


def persistables(main, scope):
    """Return what a checkpoint of a program holds."""
    names = [v.name for v in main.list_vars() if v.persistable]
    return {name: np.array(scope.find_var(name).get_tensor()) for name in names}


if __name__ == "__main__":
    for technique in (EightBits, SlowWeights, AdaptiveClip):
        fleet.register(technique)
    wanted = sys.argv[2] if len(sys.argv) > 2 else ""
    results = {"eager plain": eager({})}
    for case, switches in {**CASES, **STAGES}.items():
        if case.startswith(wanted):
            results[f"eager {case}"] = eager(switches)
            results[f"static {case}"] = program(switches)
    if wanted:
        results["demo with a break, eager"] = eager(CASES["demo"], break_at=7)
        results["demo with a break, static"] = program(CASES["demo"], break_at=7)
    else:
        results["with a break"] = eager(CASES["signsgd"], break_at=7)
        for way in (eager, program):
            results[f"slow with a break, {way.__name__}"] = way(STAGES["slow"], break_at=7)
    Path(sys.argv[1], f"{fleet.worker_index()}.json").write_text(json.dumps(results))
