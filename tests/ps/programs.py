"""Training programs for jobs with servers, in double precision; and the same without servers."""

from __future__ import annotations

from typing import Any

import numpy as np

from fleetx import fleet, static
from fleetx.static import layers
from fleetx.static.layers.contrib import sparse_embedding
from fleetx.static.layers.nn import embedding_v2

ROWS, IDS, STEPS = 6, 24, 4


def batch(step: int, worker: int) -> dict[str, np.ndarray]:
    """Return one worker's batch of a step."""
    random = np.random.RandomState(100 * step + worker)
    return {
        "x": random.randn(ROWS, 4),
        "y": random.randn(ROWS, 1),
        "ids": random.randint(0, IDS, (ROWS, 2)),
    }


def joined(step: int, workers: int) -> dict[str, np.ndarray]:
    """Return the batches of all workers as one."""
    parts = [batch(step, worker) for worker in range(workers)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def network(sparse: str = "is_sparse", padding: int | None = None) -> tuple[Any, Any]:
    """Return loss and prediction of a small network with an embedding."""
    x = static.data("x", [-1, 4], "float64")
    y = static.data("y", [-1, 1], "float64")
    ids = static.data("ids", [-1, 2], "int64")
    attr = static.ParamAttr(name="table", initializer=static.initializer.Constant(0.3))
    if sparse == "growing":
        rows = sparse_embedding(
            ids, [IDS, 3], padding_idx=padding, param_attr=attr, dtype="float64"
        )
    else:
        rows = embedding_v2(
            ids, [IDS, 3], is_sparse=sparse != "dense", padding_idx=padding, param_attr=attr,
            dtype="float64",
        )  # fmt: skip
    parts = [x, layers.reshape(rows, [-1, 6])]
    if sparse in ("later", "chained"):
        if sparse == "later":  # ids that are computed after the first look-up
            others = layers.reshape(layers.concat([ids, layers.reverse(ids, 1)], axis=1), [-1, 4])
        else:  # ids that depend on rows of the table
            others = layers.cast(layers.scale(layers.tanh(rows), 1.0, 1.0), "int64")
            others = layers.slice(layers.reshape(others, [-1, 6]), [1], [0], [4])
        shared = embedding_v2(
            others, [IDS, 3], is_sparse=True, padding_idx=padding, param_attr=attr, dtype="float64"
        )
        parts.append(layers.reshape(shared, [-1, 12]))
    if sparse == "both":
        uniform = static.initializer.Uniform(-0.5, 0.5)
        grown = static.ParamAttr(name="grown", initializer=uniform)
        more = sparse_embedding(ids, [2, 2], param_attr=grown, dtype="float64")
        parts.append(layers.reshape(more, [-1, 4]))
    joint = layers.concat(parts, axis=1)
    hidden = layers.fc(joint, 5, act="tanh", param_attr=static.ParamAttr(name="w0"))
    out = layers.fc(hidden, 1, param_attr=static.ParamAttr(name="w1"))
    return layers.mean(layers.square_error_cost(out, y)), out


def fresh() -> None:
    """Reset all programs and values."""
    from fleetx.static import unique_name
    from fleetx.static.graph.default_programs import switch_main_program, switch_startup_program

    for switch in (switch_main_program, switch_startup_program):
        switch(static.Program())
    static.default_startup_program().random_seed = 5
    static.default_main_program().random_seed = 5
    unique_name.switch()


def optimizer(kind: str, **more: Any) -> Any:
    """Return an optimizer by name."""
    made = static.optimizer
    return {
        "sgd": lambda: made.SGD(0.1, **more),
        "momentum": lambda: made.Momentum(0.1, 0.9, **more),
        "adam": lambda: made.Adam(0.05, **more),
        "adamw": lambda: made.AdamW(0.05, **more),
        "adagrad": lambda: made.Adagrad(0.1, **more),
        "rmsprop": lambda: made.RMSProp(0.05, **more),
        "adamax": lambda: made.Adamax(0.05, **more),
        "adadelta": lambda: made.Adadelta(0.5, **more),
        "decayed_adagrad": lambda: made.DecayedAdagrad(0.1, **more),
        "ftrl": lambda: made.Ftrl(0.1, l1=0.01, l2=0.02, **more),
        "lars": lambda: made.LarsMomentum(0.5, 0.9, **more),
        "lamb": lambda: made.Lamb(0.05, **more),
    }[kind]()


def strategy(mode: str = "sync") -> Any:
    """Return the strategy of a mode."""
    made = fleet.DistributedStrategy()
    made.a_sync = mode != "sync"
    if mode == "async":
        made.a_sync_configs = {"max_staleness": 0}
    elif mode == "geo":
        made.a_sync_configs = {"k_steps": 1}
    return made
