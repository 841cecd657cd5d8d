"""All-reduce between processes in plain PyTorch: all_reduce.py BACKEND BYTES.

Needs RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
"""

import sys

import torch
import torch.distributed as dist
from group_loop import serve_group

torch.set_num_threads(1)
backend, size = sys.argv[1], int(sys.argv[2])
if backend == "shm":
    from fleetx.comm import shared_memory

    shared_memory.register()
dist.init_process_group(backend)
values = torch.zeros(size // 4)


def step(i):
    """One exchange."""
    dist.all_reduce(values)


serve_group(step, 1, dist.get_rank(), dist.barrier)
dist.destroy_process_group()
