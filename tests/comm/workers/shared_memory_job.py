"""A worker of the tests of shared memory: train and save, or die in the middle of an all-reduce."""

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from fleetx import fleet


def train(file: Path) -> None:
    fleet.init(is_collective=True)
    torch.manual_seed(fleet.worker_index())
    model = torch.nn.Sequential(torch.nn.Linear(300, 500), torch.nn.Tanh(), torch.nn.Linear(500, 3))
    fork()
    strategy = fleet.DistributedStrategy()
    model = fleet.distributed_model(model)
    optimizer = fleet.distributed_optimizer(torch.optim.Adam(model.parameters(), lr=0.01), strategy)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(8, 300)).square().mean().backward()
        optimizer.step()
    # What memory does not carry is done by Gloo.
    part = torch.ones(2)
    dist.reduce(part, 0)
    bits = torch.tensor([1 + 2 * fleet.worker_index()])
    dist.all_reduce(bits, dist.ReduceOp.BAND)
    assert bits.tolist() == [1]
    names = [None, None]
    dist.all_gather_object(names, f"worker {fleet.worker_index()}")
    assert names == ["worker 0", "worker 1"]
    if fleet.worker_index() == 0:
        assert part.tolist() == [2, 2]
        print("backend", dist.get_backend())
        torch.save(model.state_dict(), file)


def fork() -> None:
    """Let a forked process leave the group, of which it is no member."""
    if dist.get_backend() != "shm":
        return
    child = os.fork()
    if child == 0:
        said = ""
        try:
            dist.barrier()
        except RuntimeError as error:
            said = str(error)
        dist.distributed_c10d._get_default_group()._segment.leave()
        os._exit(0 if "is no member of the group" in said else 1)
    assert os.waitpid(child, 0) == (child, 0)


def die(folder: Path) -> None:
    fleet.init(is_collective=True)
    if fleet.worker_index() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.all_reduce(torch.ones(1_000_000))
    except RuntimeError as error:
        (folder / "heard").write_text(str(error))
        raise


{"train": train, "die": die}[sys.argv[1]](Path(sys.argv[2]))
