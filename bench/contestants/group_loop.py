"""The side of a contestant that is a group of workers: rank 0 takes part in the contest, the
others follow it."""

import sys
import time

import torch
import torch.distributed as dist
from loop import peak_mb, tell


def serve_group(step, warm_up):
    """Warm up together; then rank 0 reads how many steps to do and all workers do them."""
    for i in range(warm_up):
        step(i)
    first = dist.get_rank() == 0
    if first:
        tell(workers=dist.get_world_size())
    done = 0
    while True:
        count = torch.zeros(1, dtype=torch.int64)
        if first:
            line = sys.stdin.readline()
            count[0] = int(line) if line.strip() else 0
        dist.broadcast(count, 0)
        if not int(count):
            break
        dist.barrier()
        start = time.perf_counter()
        for i in range(int(count)):
            step(done + i)
        dist.barrier()
        if first:
            print(f"@{time.perf_counter() - start!r}", flush=True)
        done += int(count)
    if first:
        tell(peak_mb=peak_mb())
    dist.destroy_process_group()
