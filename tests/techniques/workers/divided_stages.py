"""Trains models whose layers are on different workers, which divide each stage among them.

Each worker writes its parameters at the end of each case, as lists of numbers. Eight workers, with
copies of a divided pipeline, train a few cases only."""

import sys
from pathlib import Path

from divided_pairs import local, refusal, write
from pipeline import PAIR, batch, case, make, pipeline

from fleetx import fleet


def divided(mp=1, sharding=1, stage=1, **configs):
    """Return settings of a pipeline of two workers, of which workers divide each stage."""
    settings = pipeline(**configs)
    settings["hybrid_configs"] = {"pp_degree": 2, "mp_degree": mp, "sharding_degree": sharding}
    if sharding > 1:
        settings |= {"sharding": True, "sharding_configs": {"stage": stage}}
    return settings


WAYS = {
    "layers": divided(mp=2),
    "shards 1": divided(sharding=2),
    "shards 2": divided(sharding=2, stage=2),
    "shards 3": divided(sharding=2, stage=3),
}
# As one process, besides the ways themselves.
ALIKE = {
    "layers, interleaved": divided(mp=2, schedule_mode="VPP"),
    "layers, zero bubble": divided(mp=2, schedule_mode="ZBVPP"),
    "shards 1, interleaved": divided(sharding=2, schedule_mode="VPP"),
    "shards 2, zero bubble": divided(sharding=2, stage=2, schedule_mode="ZBVPP"),
    "shards 3, interleaved": divided(sharding=2, stage=3, schedule_mode="VPP"),
}
# Of eight workers: settings, optimizer.
EIGHT = {
    "layers and local steps": ({**divided(mp=2), **local()}, "sgd"),
    "shards 1 and copies": (divided(sharding=2), "adamw"),
    "shards 2 and local steps": ({**divided(sharding=2, stage=2), **local()}, "sgd"),
    "shards 3 and copies": (divided(sharding=2, stage=3), "adamw"),
    "layers and shards 3": (divided(mp=2, sharding=2, stage=3), "adamw"),
}


def other_batches():
    """Return the error of a worker whose copy got different batches."""
    model, optimizer = make(WAYS["layers"], "sgd")
    return refusal(model.train_batch, batch(fleet.worker_index()), optimizer)


def main():
    folder = Path(sys.argv[1])
    fleet.init(is_collective=True)
    if fleet.worker_num() == 8:
        result = {name: case(*given) for name, given in EIGHT.items()}
    else:
        result = {
            "alike": {name: case(settings, "adamw") for name, settings in ALIKE.items()},
            "saved": {
                name: PAIR.saved(way, folder / name, first="optimizer")
                for name, way in WAYS.items()
            },
            "other batches": other_batches(),
        }
    write(folder, result)


if __name__ == "__main__":
    main()
