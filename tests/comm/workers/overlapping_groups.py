"""Four workers in all groups that they can form, with collectives in any order that is allowed."""

import random
import sys
import threading
from itertools import combinations
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

from fleetx import fleet
from fleetx.comm.shared_memory import SharedMemoryGroup

ROUNDS = 3
Members = tuple[int, ...]
# Some have other names since PyTorch 2.13.
gather = getattr(functional, "all_gather_single", None) or functional.all_gather_tensor
scatter = getattr(functional, "reduce_scatter_single", None) or functional.reduce_scatter_tensor


def sum_of(members: Members, shift: int) -> float:
    return float(sum(rank + shift for rank in members))


def reduce_in_any_order(groups: dict[Members, dist.ProcessGroup], order: random.Random) -> None:
    """Start two sums in each group, groups in this worker's own order; wait in another one."""
    started = []
    for members in order.sample(list(groups), len(groups)):
        for shift, count in (1, 3), (100, 50_000):
            tensor = torch.full((count,), float(dist.get_rank() + shift))
            work = dist.all_reduce(tensor, group=groups[members], async_op=True)
            started.append((work, tensor, sum_of(members, shift)))
    order.shuffle(started)
    for work, tensor, expected in started:
        work.wait()
        assert tensor.unique().tolist() == [expected]


def exchange_in_between(pair: dist.ProcessGroup, partner: int) -> None:
    """One of two workers reduces before it sends, the other receives before it reduces."""
    tensor, message = torch.ones(3), torch.zeros(2)
    if dist.get_rank() < partner:
        work = dist.all_reduce(tensor, group=pair, async_op=True)
        dist.send(message + 7, partner)
        work.wait()
    else:
        dist.recv(message, partner)
        dist.all_reduce(tensor, group=pair)
        assert message.tolist() == [7, 7]
    assert tensor.tolist() == [2, 2, 2]


def call_from_outside_of_python(group: dist.ProcessGroup) -> None:
    """Collectives as DTensor calls them; their tensors are dropped where the last one ends."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for turn in range(100):
        own = torch.full((size,), float(rank + turn))
        whole = gather(own, 0, group)
        part = scatter(own, "sum", 0, group)
        mixed = functional.all_to_all_single(own, None, None, group)
        total = functional.all_reduce(own, "sum", group)
        assert whole.tolist() == [float(r + turn) for r in range(size) for _ in range(size)]
        assert part.tolist() == [sum_of(tuple(range(size)), turn)]
        assert mixed.tolist() == [float(r + turn) for r in range(size)]
        assert total.tolist() == [sum_of(tuple(range(size)), turn)] * size


def run(folder: Path) -> None:
    fleet.init(is_collective=True)
    rank, everybody = dist.get_rank(), range(dist.get_world_size())
    groups: dict[Members, dist.ProcessGroup] = {}
    for size in everybody[2:]:
        for members in combinations(everybody, size):
            group = dist.new_group(list(members))
            if rank in members:
                groups[members] = group
    groups[tuple(everybody)] = dist.group.WORLD
    assert all(isinstance(group, SharedMemoryGroup) for group in groups.values())

    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            mine = {m: g for m, g in groups.items() if sum(m) % 2 == number}
            for turn in range(ROUNDS):
                reduce_in_any_order(mine, random.Random(1000 * rank + 10 * turn + number))
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    partner = rank ^ 1
    exchange_in_between(groups[min(rank, partner), max(rank, partner)], partner)
    call_from_outside_of_python(dist.group.WORLD)
    (folder / f"ended.{rank}").touch()


run(Path(sys.argv[1]))
