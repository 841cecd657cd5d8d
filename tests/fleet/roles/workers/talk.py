"""Each process exchanges numbers and arrays with the others, and writes what it received."""

import json
import sys
from pathlib import Path

import numpy as np

from fleetx.fleet import metrics
from fleetx.fleet.roles.role_maker import PaddleCloudRoleMaker
from fleetx.fleet.roles.user_defined_role_maker import UserDefinedCollectiveRoleMaker
from fleetx.fleet.utilities import UtilBase


def collective(role):
    util = UtilBase(role)
    rank = util.role_maker.worker_index()
    heard = {
        "index": rank,
        "launcher": role.worker.launcher,
        "numbers": util.all_gather(rank + 0.5),
        "arrays": [a.tolist() for a in util.all_gather(np.arange(rank * 2))],
        "mixed": util.all_gather(rank if rank else 0.25),
        "sum": util.all_reduce([[rank, 2**40]]).tolist(),
        "max": int(util.all_reduce(rank, "max")),
        "half": float(util.all_reduce(np.float16(0.5))),
        "files": util.get_file_shard(["a", "b", "c"]),
    }
    total = [0.0, 0.0]
    role.all_reduce_worker([1.0, rank], total)
    heard["in_place"] = total
    try:
        util.all_reduce(np.zeros(rank + 1))
    except ValueError as error:
        heard["refused"] = str(error)
    positives, negatives = np.zeros((1, 4)), np.zeros((1, 4))
    positives[0, 3 - rank] += 1
    negatives[0, rank] += 2
    heard["auc"] = metrics.auc(positives, negatives, util=util)
    heard["acc"] = metrics.acc(np.array([rank + 1]), np.array([4]), util=util)
    heard["rmse"] = metrics.rmse(np.array([4.0]), 1, util=util)
    util.print_on_rank("only one says this", 0)
    util.barrier()
    return heard


def with_servers(role):
    world = "server" if role.is_server() else "worker"
    heard = {
        "role": world,
        "own": role.all_gather(role.role_id() + 10, world),
        "all": role.all_gather(role.role_id() + (100 if role.is_server() else 0), "all"),
        "sum": int(role.all_reduce(1, "sum", "all")),
    }
    role.barrier_all()
    return heard


def main():
    how, out = sys.argv[1:3]
    if how == "servers":
        role = PaddleCloudRoleMaker()
        heard = with_servers(role)
        name = f"{heard['role']}.{role.role_id()}.json"
    else:
        if how == "environment":
            role = PaddleCloudRoleMaker(is_collective=True)
        else:
            role = UserDefinedCollectiveRoleMaker(int(sys.argv[3]), sys.argv[4].split(","))
        heard = collective(role)
        name = f"{heard['index']}.json"
    (Path(out) / name).write_text(json.dumps(heard))


main()
