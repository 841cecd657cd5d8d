"""The loop of a contestant that is a group of workers: all run the requested steps, rank 0
reports for them. Runs on Python 3.7 too."""

import json
import sys
import time

from loop import peak_mb, tell


def strategy_of(fleet):
    """Return a strategy with the settings in the second argument, as JSON."""
    strategy = fleet.DistributedStrategy()
    for name, value in json.loads(sys.argv[2] if len(sys.argv) > 2 else "{}").items():
        setattr(strategy, name, value)
    return strategy


def serve_group(step, warm_up, rank, barrier):
    """Warm up together, then run as many steps as each line of the input requests."""
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
