"""A worker of two machines: hierarchical sums, with shared memory within each machine."""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from fleetx import fleet
from fleetx.comm.hierarchy import Hierarchy
from fleetx.comm.shared_memory import SharedMemoryGroup

fleet.init(is_collective=True)
rank = fleet.worker_index()
hierarchy = Hierarchy(2)
torch.manual_seed(rank)
whole = torch.randint(-1000, 1000, (2_500_000,)).double()
random = torch.randn(2_500_000)
for bucket in (plain := whole.clone(), random):
    hierarchy.start(bucket).wait()
dist.all_reduce(whole)
parts = [torch.empty_like(random) for _ in range(4)]
dist.all_gather(parts, random)
told = {
    "backend": dist.get_backend(),
    "within": isinstance(hierarchy._inward, SharedMemoryGroup),
    "exact": torch.equal(plain, whole),
    "same bits": all(torch.equal(part, random) for part in parts),
}
hierarchy.leave()
Path(sys.argv[1], f"told.{rank}").write_text(json.dumps(told))
