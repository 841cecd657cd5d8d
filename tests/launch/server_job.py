"""A script of a server job without the Fleet API; it only uses the variables of fleetrun.

server_job.py FOLDER STEPS [MODE]: servers serve, workers train the small model of tests/ps. Worker
0 waits before step 2 until FOLDER/go exists, all before step N while FOLDER/holdN exists. Servers
that take over wait while FOLDER/hold_successors exists. Every process leaves its process number in
FOLDER/<role><i>.pid.
"""

import logging
import os
import sys
import threading
from pathlib import Path

import torch
import training

from fleetx.checkpoint import manifest
from fleetx.ps.client.client import Client, ClientSettings
from fleetx.ps.server.server import ServerSettings, run_server
from fleetx.ps.server.snapshots import Durability
from fleetx.ps.wire.security import JobKeys
from fleetx.runtime.role_environment import detect_server_job
from fleetx.runtime.server_support import detect_server_support

folder, steps = Path(sys.argv[1]), int(sys.argv[2])
mode = sys.argv[3] if len(sys.argv) > 3 else "sync"
torch.set_num_threads(1)
logging.basicConfig(level=logging.INFO, format="%(message)s")

job, support = detect_server_job(), detect_server_support()
keys = JobKeys.from_dict(support.keys) if support.keys else None
mark = folder / f"{job.role}{job.index}.pid"
mark.with_suffix(".new").write_text(str(os.getpid()))
mark.with_suffix(".new").rename(mark)
print("keys" if keys else "no keys", "kept" if support.state_folder else "in memory")


def before_step(step: int) -> None:
    training.begin_step(folder, job.index, step)
    while step == 2 and job.index == 0 and not (folder / "go").exists():
        threading.Event().wait(0.02)


if job.role == "PSERVER":
    durability = Durability(folder=support.state_folder) if support.state_folder else None
    settings = ServerSettings(
        workers=job.worker_num,
        index=job.index,
        servers=len(job.server_endpoints),
        keys=keys,
        durability=durability,
        take_over=support.take_over,
        elastic=support.elastic,
        worker_wait=support.worker_wait or 120.0,
    )
    while support.take_over and (folder / "hold_successors").exists():
        threading.Event().wait(0.02)
    run_server(job.current_endpoint, settings)
else:
    client = Client(
        list(job.server_endpoints),
        worker=job.index,
        workers=job.worker_num,
        settings=ClientSettings(keys=keys, layout=support.layout),
    )
    trained = training.make_mode(mode, client, client.cut)
    result = training.train(trained, steps, before_step)
    manifest.save_state(folder / f"result{job.index}", result)
    trained.stop()
