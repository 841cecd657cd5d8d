"""All-reduce of 100 MB between two processes with Gloo, in plain PyTorch.

Needs RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
"""

import torch
import torch.distributed as dist
from group_loop import serve_group

torch.set_num_threads(1)
dist.init_process_group("gloo")
values = torch.ones(25_000_000)


def step(i):
    """One exchange."""
    dist.all_reduce(values)
    values.div_(dist.get_world_size())


serve_group(step, 1, dist.get_rank(), dist.barrier)
dist.destroy_process_group()
