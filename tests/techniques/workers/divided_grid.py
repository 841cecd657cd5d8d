"""Trains divided models with techniques and pairs of them; or, as fewer workers, whole models.

    divided_grid.py folder largest

`largest` is how many techniques are combined at most. Four workers divide a model in every way; one
or two take the place of its copies. Each worker writes the refusals of cases to `<rank>.json`, and
the parameters of the others, as one vector each, to `<rank>.safetensors`.
"""

import itertools
import json
import sys
from pathlib import Path

import divided_stages
import hybrid
import pipeline
import torch
from safetensors.torch import save_file

from fleetx import fleet

STEPS = 4  # after which copies are equal
SETTINGS = {
    "amp": {"amp_configs": {"dtype": "bfloat16"}},
    "recompute": {"recompute_configs": {"checkpoints": ["Block"]}},
    "gradient_merge": {"gradient_merge_configs": {"k_steps": 2}},
    "gradient_clip": {"gradient_clip_configs": {"norm": 0.05}},
    "lars": {"lars_configs": {"lars_coeff": 0.1}},
    "lamb": {},
    "stop_on_nan": {},
    "fp16_allreduce": {},
    "localsgd": {"localsgd_configs": {"k_steps": 2, "begin_step": 0}},
    "adaptive_localsgd": {"adaptive_localsgd_configs": {"init_k_steps": 2, "begin_step": 0}},
    "dgc": {"dgc_configs": {"sparsity": [0.5]}},
    "signsgd": {},
    "powersgd": {"powersgd_configs": {"start_powerSGD_iter": 0}},
    "demo": {},
}
EXCHANGES = {"localsgd", "adaptive_localsgd", "dgc", "signsgd", "powersgd", "demo"}
"""Copies of the model differ, or compress what they send."""
# Which model, how it is divided, and which samples copy 0 of two takes, copy 1 taking the others.
EVEN, PAIRED = (0, 2), (0, 1)
WAYS = {
    "tp2": (hybrid, hybrid.TP2, EVEN),
    "shards 1": (hybrid, hybrid.shards(1), PAIRED),
    "shards 2": (hybrid, hybrid.shards(2), PAIRED),
    "shards 3": (hybrid, hybrid.shards(3), PAIRED),
    "tp2 x shards 3": (hybrid, hybrid.BOTH, EVEN),  # the only copy
    "pipeline": (pipeline, pipeline.pipeline(), EVEN),
    "zero bubble": (pipeline, pipeline.pipeline(schedule_mode="ZBVPP"), EVEN),
    "pipeline x tp2": (pipeline, divided_stages.divided(mp=2), EVEN),
    "pipeline x shards 2": (pipeline, divided_stages.divided(sharding=2, stage=2), EVEN),
    "pipeline x shards 3": (pipeline, divided_stages.divided(sharding=2, stage=3), EVEN),
}
ONE_COPY = {way for way in WAYS if " x " in way}


def combinations(largest):
    """Return the combinations of at most so many techniques; the empty one too."""
    sizes = range(largest + 1)
    return [names for size in sizes for names in itertools.combinations(SETTINGS, size)]


def settings_of(names):
    """Return what switches techniques on, and the optimizer that they need."""
    settings = {}
    for name in names:
        settings |= {name: True, **SETTINGS[name]}
    return settings, "adam" if "lamb" in names else "momentum"


def rows_of(quarters, tensors):
    """Return the samples of the given quarters of a batch, in order."""
    picked = [tensors[quarter::4] for quarter in quarters]
    return torch.cat(picked)


def own_batch(source, step, quarters):
    """Return this worker's samples: by its place in the layout, or instead of a copy."""
    if quarters is None:
        return source.batch(step, fleet.data_index(), fleet.data_num())
    if fleet.worker_num() == 1:
        return source.batch(step)
    own = quarters if fleet.worker_index() == 0 else sorted({0, 1, 2, 3} - set(quarters))
    whole = source.batch(step)
    if isinstance(whole, tuple):
        return tuple(rows_of(own, tensor) for tensor in whole)
    return rows_of(own, whole)


def vector(model):
    """Return all parameters and buffers, one after another."""
    return torch.cat([tensor.detach().double().flatten() for tensor in model.state_dict().values()])


def case(source, settings, kind, quarters=None):
    """Return the parameters after training, or the sentence by which the job is refused."""
    try:
        model, optimizer = source.make(settings, kind)
    except ValueError as error:
        return str(error)
    for step in range(STEPS):
        samples = own_batch(source, step, quarters)
        if source is pipeline:
            model.train_batch(samples, optimizer)
        else:
            optimizer.zero_grad()
            loss = source.loss_of(model, samples)
            loss.backward()
            optimizer.step(loss=loss)
    return vector(model)


def cases(largest, workers):
    """Return the cases by name: arguments of `case`. One worker takes those without an exchange,
    two those with one, four all of them."""
    result = {}
    for names in combinations(largest):
        settings, kind = settings_of(names)
        exchanges = not EXCHANGES.isdisjoint(names)
        for way, (source, divided, quarters) in WAYS.items():
            if exchanges and way in ONE_COPY:
                continue
            name = ", ".join([way, *names])
            if workers == 4:
                result[name] = source, {**divided, **settings}, kind
            elif exchanges == (workers == 2):
                result[name] = source, settings, kind, quarters
    return result


def main():
    folder, largest = Path(sys.argv[1]), int(sys.argv[2])
    fleet.init(is_collective=True)
    refused, trained, known = {}, {}, {}
    for name, given in cases(largest, fleet.worker_num()).items():
        key = str(given)  # whole models do not depend on the way
        if key not in known:
            known[key] = case(*given)
        found = known[key]
        if isinstance(found, str):
            refused[name] = found
        else:
            trained[name] = found.clone()
    rank = fleet.worker_index()
    save_file(trained, folder / f"{rank}.safetensors")
    (folder / f"{rank}.json").write_text(json.dumps(refused))


if __name__ == "__main__":
    main()
