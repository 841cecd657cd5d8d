"""A network of divided layers, trained by all workers; each writes its parts of the parameters."""

import sys
from pathlib import Path

import numpy as np

from fleetx import fleet, static
from fleetx.static import layers, nn, optimizer
from fleetx.static.nn.divided import split
from fleetx.static.regularizer import L2Decay
from fleetx.static.tensor.common import set_default_dtype

STEPS = 3
SHAPES = {
    "table": (7, 6),
    "up": (6, 8),
    "up_bias": (8,),
    "down": (8, 4),
    "wide": (4, 6),
    "wide_bias": (6,),
    "row": (6, 5),
    "row_bias": (5,),
    "head": (5, 2),
    "head_bias": (2,),
}
AXES = {"table": 0, "up": 1, "up_bias": 0, "down": 0, "wide": 1, "wide_bias": 0, "row": 0}
OPTIMIZERS = {
    "momentum": lambda: optimizer.Momentum(
        0.1, 0.9, regularization=L2Decay(0.01), grad_clip=static.clip.GradientClipByValue(0.4)
    ),
    "adam": lambda: optimizer.Adam(0.05),
}


def start(name):
    """Return the first values of a whole parameter."""
    seed = list(SHAPES).index(name)
    return np.random.default_rng(seed).normal(size=SHAPES[name]) * 0.5


def part(name, whole, rank, workers):
    """Return a worker's part of a parameter; a table's has one row more."""
    if name not in AXES or workers == 1:
        return whole
    # The first parts of a table are the larger ones.
    mine = np.array_split(whole, workers, AXES[name])[rank]
    return np.concatenate([mine, np.full((1, 6), 9.0)]) if name == "table" else mine


def batches():
    """Return the batches, the same on all workers."""
    random = np.random.default_rng(5)
    return [
        {"ids": random.integers(0, 7, (4, 3)), "y": random.normal(size=(4, 3, 2))}
        for _ in range(STEPS)
    ]


def network(rank, workers):
    """Return the loss and the output of the network, divided or, for one worker, whole."""

    def attr(name):
        values = part(name, start(name), rank, workers)
        return static.ParamAttr(
            name=name, initializer=static.initializer.NumpyArrayInitializer(values)
        )

    def linear(x, name, bias, **more):
        given = attr(f"{name}_bias") if bias else False
        if workers == 1 or not more:
            return nn.Linear(*SHAPES[name], attr(name), given)(x)
        return split(
            x,
            SHAPES[name],
            "linear",
            num_partitions=workers,
            weight_attr=attr(name),
            bias_attr=given,
            **more,
        )

    ids = static.data("ids", [None, 3], "int64")
    y = static.data("y", [None, 3, 2], "float64")
    if workers == 1:
        x = nn.Embedding(7, 6, weight_attr=attr("table"))(ids)
    else:
        x = split(ids, (7, 6), "embedding", num_partitions=workers, weight_attr=attr("table"))
    x = linear(x, "up", True, axis=1, gather_out=False)
    x = linear(layers.tanh(x), "down", False, axis=0)  # a share of the columns each
    x = linear(layers.tanh(x), "wide", True, axis=1)
    x = linear(layers.tanh(x), "row", True, axis=0)  # all columns, of which each takes its share
    out = linear(layers.tanh(x), "head", True)
    return layers.reduce_mean(layers.square(out - y)), out


def train(make, rank, workers, distribute=lambda made: made):
    """Train from the start; return losses, the last output and the parameters at the end."""
    set_default_dtype("float64")
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), static.unique_name.guard():
        loss, out = network(rank, workers)
        distribute(make()).minimize(loss, startup)
    executor, scope = static.Executor(), static.Scope()
    with static.scope_guard(scope):
        executor.run(startup)
        fetched = [executor.run(main, feed=b, fetch_list=[loss, out]) for b in batches()]
        found = {name: scope.find_var(name).get_tensor().numpy().copy() for name in SHAPES}
    return {"losses": np.array([f[0] for f in fetched]), "out": fetched[-1][1], **found}


def refusals(*place):
    """Return the words with which settings for whole parameters are refused."""

    def words(call):
        try:
            call()
        except ValueError as error:
            return str(error)
        return "accepted"

    def trained(made, *switches):
        strategy = fleet.DistributedStrategy()
        for switch in switches:
            setattr(strategy, switch, True)
        train(lambda: made, *place, lambda made: fleet.distributed_optimizer(made, strategy))

    clip = static.clip.GradientClipByGlobalNorm(1.0)
    found = {
        "global norm": words(lambda: trained(optimizer.SGD(0.1, grad_clip=clip))),
        "lamb": words(lambda: trained(optimizer.Lamb(0.1))),
        "wrapped": words(lambda: trained(optimizer.LookaheadOptimizer(optimizer.SGD(0.1)))),
    }
    for switch in ("amp", "localsgd", "sharding"):
        found[switch] = words(lambda switch=switch: trained(optimizer.SGD(0.1), switch))
    trained(optimizer.SGD(0.1))
    found["saving"] = words(lambda: fleet.save_persistables(static.Executor(), "folder"))
    return found


def main(folder):
    """Train with every optimizer, once with gradients merged over two runs; try what is refused."""
    fleet.init(is_collective=True)
    place = fleet.worker_index(), fleet.worker_num()
    results = {}
    for name, make in OPTIMIZERS.items():
        found = train(make, *place, fleet.distributed_optimizer)
        results.update({f"{name} {key}": value for key, value in found.items()})
    strategy = fleet.DistributedStrategy()
    strategy.gradient_merge = True
    strategy.gradient_merge_configs = {"k_steps": 2, "avg": True}
    found = train(
        OPTIMIZERS["adam"], *place, lambda made: fleet.distributed_optimizer(made, strategy)
    )
    results.update({f"merged {key}": value for key, value in found.items()})
    results.update({f"refused {key}": np.array(value) for key, value in refusals(*place).items()})
    np.savez(folder / f"{place[0]}.npz", **results)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
