"""The side of a contestant that is a group of workers: all are told how many steps to do, rank 0
answers for them."""

import sys
import time

from loop import peak_mb, tell


def serve_group(step, warm_up, rank, barrier):
    """Warm up together, then do as many steps as every line of the input says."""
    for i in range(warm_up):
        step(i)
    barrier()
    if rank == 0:
        tell()
    done = 0
    for line in sys.stdin:
        count = int(line)
        barrier()
        start = time.perf_counter()
        for i in range(count):
            step(done + i)
        barrier()
        if rank == 0:
            print(f"@{time.perf_counter() - start!r}", flush=True)
        done += count
    if rank == 0:
        tell(peak_mb=peak_mb())
