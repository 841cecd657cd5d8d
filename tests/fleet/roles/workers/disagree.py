"""Two workers that were started differently, in several ways; each writes the error it got."""

import json
import os
import sys
from pathlib import Path

import torch

from fleetx import comm
from fleetx.fleet import DistributedStrategy
from fleetx.fleet.roles.user_defined_role_maker import UserDefinedCollectiveRoleMaker
from fleetx.fleet.session import Fleet


def strategy(**settings):
    result = DistributedStrategy()
    for name, value in settings.items():
        setattr(result, name, value)
    return result


def strategies_at_init(rank):
    mine = strategy(nccl_comm_num=rank + 1, sync_batch_norm=rank == 1)
    Fleet().init(is_collective=True, strategy=mine)


def strategies_at_the_optimizer(rank):
    fleet = Fleet()
    fleet.init(is_collective=True)
    model = torch.nn.Linear(1, 1)
    mine = strategy(fuse_grad_size_in_MB=16) if rank else None
    fleet.distributed_optimizer(torch.optim.SGD(model.parameters(), lr=0.1), mine)


def world_sizes(rank):
    os.environ["WORLD_SIZE"] = str(3 - rank)
    Fleet().init(is_collective=True)


def scripts(rank):
    other = Path(sys.argv[2]) / "other.py"
    if rank:
        other.write_text("pass")
        sys.argv[0] = str(other)
    Fleet().init(is_collective=True)


def the_same_number(rank):
    # Rank 1 of 3 is missing; two workers have rank 2.
    os.environ.update(RANK="0" if rank == 0 else "2", WORLD_SIZE="3")
    if rank == 0:
        Fleet().init(is_collective=True)
        return
    if os.fork() == 0:
        try:
            Fleet().init(is_collective=True)
        finally:
            os._exit(0)
    Fleet().init(is_collective=True)


def what_concerns_one_worker_only(rank):
    mine = strategy()
    mine.execution_strategy.num_threads = rank + 1
    Fleet().init(is_collective=True, strategy=mine)


def workers_that_the_script_names(rank):
    fleet = Fleet()
    endpoints = [os.environ["MASTER_ADDR"] + ":" + os.environ["MASTER_PORT"], "127.0.0.1:1"]
    fleet.init(UserDefinedCollectiveRoleMaker(rank, endpoints))
    assert not torch.distributed.is_initialized()
    assert (comm.rank(), comm.world_size()) == (rank, 2)
    assert fleet.util.all_gather(rank) == [0, 1]
    assert torch.distributed.is_initialized()


def nobody_else(rank):
    if rank == 0:
        Fleet().init(is_collective=True, timeout_seconds=2)


CASES = [
    strategies_at_init,
    world_sizes,
    scripts,
    the_same_number,
    nobody_else,
    strategies_at_the_optimizer,
    what_concerns_one_worker_only,
    workers_that_the_script_names,
]


def main():
    rank, script = int(os.environ["RANK"]), sys.argv[0]
    told = {}
    for case, port in zip(CASES, sys.argv[3:], strict=True):
        os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_PORT=port)
        sys.argv[0] = script
        try:
            case(rank)
        except RuntimeError as error:
            told[case.__name__] = str(error)
        comm.disconnect()
    (Path(sys.argv[2]) / f"{rank}.json").write_text(json.dumps(told))


if sys.argv[1] == "all":
    main()
else:  # one case, under a real launcher
    strategies_at_init(int(os.environ["RANK"]))
