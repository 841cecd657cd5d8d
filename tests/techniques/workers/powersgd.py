"""Trains with powersgd, eager and static, alone and in combinations, beside DDP with torch's hook;
each worker writes its final parameters, what it keeps and what it sent as JSON."""

import json
import sys
from pathlib import Path

import compressed
import torch
import torch.distributed as dist
from compressed import SIZE, batches, eager, first_weights, program
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as hook

from fleetx import fleet
from fleetx.techniques.powersgd import Config, LowRankExchange

OUT = compressed.OUT


def power(more=None, **configs):
    """Return the switches of powersgd with these settings, from the first step."""
    configs = {"start_powerSGD_iter": 0, **configs}
    return {"powersgd": True, "powersgd_configs": configs, **(more or {})}


HALF = {"amp": True, "amp_configs": {"dtype": "float16"}}
MERGE = {"gradient_merge": True, "gradient_merge_configs": {"k_steps": 2}}
FULL = {"matrix_approximation_rank": OUT, "min_compression_rate": 0.5}
CASES = {
    "rank 1": power(),
    "rank 2": power(matrix_approximation_rank=2, min_compression_rate=1.0),
    "late": power(start_powerSGD_iter=2),
    "cold": power(warm_start=False, use_error_feedback=False),
    "full rank": power(**FULL),
    "never": power(start_powerSGD_iter=1000),
    "too small": power(min_compression_rate=3.0),
    "amp": power(HALF),
    "merge": power(MERGE),
    "amp, merge": power(MERGE | {"amp": True, "amp_configs": {"dtype": "bfloat16"}}),
    "clip": power({"gradient_clip": True, "gradient_clip_configs": {"norm": 0.1}}),
    "full rank, merge": power(MERGE, **FULL),
}


def ddp_with_hook():
    """Train as "late" does, with DDP and torch's own hook."""
    model = torch.nn.parallel.DistributedDataParallel(compressed.Layer())
    state = hook.PowerSGDState(None, start_powerSGD_iter=2, orthogonalization_epsilon=1e-8)
    model.register_comm_hook(state, hook.powerSGD_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for x, y in batches(fleet.worker_index()):
        optimizer.zero_grad()
        ((model(torch.from_numpy(x)) - torch.from_numpy(y)) ** 2).mean().backward()
        optimizer.step()
    return {"w": model.module.w.ravel().tolist(), "b": model.module.b.tolist()}


def counted(train):
    """Return the bytes that all-reduces of `train` were given."""
    own, total = dist.all_reduce, 0

    def count(tensor, *args, **kwargs):
        nonlocal total
        total += tensor.numel() * tensor.element_size()
        return own(tensor, *args, **kwargs)

    dist.all_reduce = count
    try:
        train()
    finally:
        dist.all_reduce = own
    return total


SHAPES = {"scalar": (), "none": (0, 3), "vector": (7,), "one": (12, 9), "two": (3, 4, 3, 3)}
SHAPES |= {"same as one": (12, 9), "double": (10, 10), "half": (9, 9)}
TYPES = {"double": torch.float64, "half": torch.bfloat16}


def gradients(step, rank):
    """Return gradients of many shapes and types; one of them is 0 in the first two steps."""
    torch.manual_seed(100 * step + rank)
    made = {n: torch.randn(s).to(TYPES.get(n, torch.float32)) for n, s in SHAPES.items()}
    made["two"] = made["two"].contiguous(memory_format=torch.channels_last)
    return {**made, "one": made["one"] * (step > 1)}


def many_tensors(**settings):
    """Exchange gradients of many shapes; return the means as sent and as they should be, and what
    is kept."""
    stage = LowRankExchange(Config(start_powerSGD_iter=0, **settings))
    state = stage.first_state(gradients(0, 0))
    steps = []
    for step in range(4):
        means = stage.mean(gradients(step, fleet.worker_index()), state)
        both = [gradients(step, rank) for rank in range(2)]
        right = {n: (both[0][n].double() + both[1][n].double()) / 2 for n in means}
        steps.append(
            {
                name: {
                    "mean": means[name].double().ravel().tolist(),
                    "right": right[name].ravel().tolist(),
                    "layout": [*means[name].stride(), str(means[name].dtype)],
                    "expected": [*both[0][name].stride(), str(both[0][name].dtype)],
                }
                for name in means
            }
        )
    return {"steps": steps, "kept": {n: [*t.shape] for n, t in state.items()}}


if __name__ == "__main__":
    results = {}
    for case, switches in CASES.items():
        results[f"eager {case}"] = eager(switches)
        results[f"static {case}"] = program(switches)
    results["plain"] = eager({})
    results["plain, merge"] = eager(MERGE)
    results["hook of torch"] = ddp_with_hook()
    results["with a break"] = eager(CASES["rank 2"], break_at=7)
    results["with an early break"] = eager(CASES["late"], break_at=1)
    results["program with a break"] = program(CASES["rank 2"], break_at=7)
    results["counted"] = counted(lambda: eager(CASES["rank 1"])) / compressed.STEPS
    results["all-reduce"] = 4 * (SIZE * OUT + OUT)
    results["first"] = first_weights().ravel().tolist()
    results["many"] = many_tensors(matrix_approximation_rank=2)
    results["many, full rank"] = many_tensors(
        matrix_approximation_rank=64, min_compression_rate=0.01
    )
    Path(sys.argv[1], f"{fleet.worker_index()}.json").write_text(json.dumps(results))
