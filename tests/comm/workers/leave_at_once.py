"""Worker 1 completes its connections late; worker 0 tells whether `fleet.init` waited for it."""

import os
import sys
import time
from pathlib import Path

import torch.distributed as dist

from fleetx import fleet

folder, rank = Path(sys.argv[1]), os.environ["RANK"]
connect = dist.init_process_group


def connect_late(*arguments, **settings):
    connect(*arguments, **settings)
    if rank == "1":
        # A worker 0 that does not wait returns meanwhile.
        end = time.monotonic() + 0.5
        while time.monotonic() < end and not (folder / "returned.0").exists():
            time.sleep(0.01)
    (folder / f"connected.{rank}").touch()


dist.init_process_group = connect_late
fleet.init(is_collective=True)
(folder / f"returned.{rank}").touch()
print("all connected:", (folder / "connected.1").exists())
