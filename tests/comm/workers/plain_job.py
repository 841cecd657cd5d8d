"""A worker without FleetX: DDP and FSDP2, by default, by Gloo, and without memory."""

import copy
import resource
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def run(group: dist.ProcessGroup) -> list[torch.Tensor]:
    """Train two models; return their parameters."""
    if rank == 0:
        print("group", type(group).__name__, flush=True)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(30, 500), torch.nn.Tanh(), torch.nn.Linear(500, 3))
    sharded = copy.deepcopy(model)
    mesh = DeviceMesh.from_group(group, "cpu")
    for part in (*sharded, sharded):
        fully_shard(part, mesh=mesh)
    together = DistributedDataParallel(model, process_group=group)
    torch.manual_seed(rank)
    for each in (together, sharded):
        optimizer = torch.optim.SGD(each.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            each(torch.randn(8, 30)).square().mean().backward()
            optimizer.step()
    names: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(names, f"worker {rank}", group=group)
    assert names == ["worker 0", "worker 1"]
    return [
        *(parameter.detach() for parameter in model.parameters()),
        *(parameter.full_tensor().detach() for parameter in sharded.parameters()),
    ]


dist.init_process_group()
rank = dist.get_rank()
by_default = run(dist.group.WORLD)
by_gloo = run(dist.new_group(backend="gloo"))
assert all(map(torch.equal, by_default, by_gloo))
resource.setrlimit(resource.RLIMIT_FSIZE, (2**19, 2**19))  # for anonymous memory too
without_memory = run(dist.new_group())
assert all(map(torch.equal, without_memory, by_gloo))
assert not any(name.startswith("fleetx.fleet") for name in sys.modules)
print("the same bits", flush=True)
dist.barrier()
dist.destroy_process_group()
