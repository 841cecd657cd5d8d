"""Saves, damages the tensors on the disk, and is killed; the next start loads from memory.

fleetrun --max_restart 1 resume_from_memory.py FOLDER
"""

import logging
import os
import signal
import sys
from pathlib import Path

import torch

from fleetx import comm, fleet

logging.basicConfig(level=logging.INFO, format="%(message)s")
folder = Path(sys.argv[1])
fleet.init(is_collective=True)
rank = fleet.worker_index()
found = fleet.load_checkpoint(str(folder / "out"))
if found is None:
    state = torch.full((1000,), float(rank))
    fleet.save_checkpoint(str(folder / "out"), exact=True, blocking=False, state=state)
    fleet.wait_for_checkpoint()
    tensors = folder / f"out/checkpoint.0/worker.{rank}/tensors.safetensors"
    content = bytearray(tensors.read_bytes())
    content[-1] ^= 1
    tensors.write_bytes(content)
    (folder / f"memory.{rank}").write_text(os.environ["FLEETX_STATE_MEMORY"])
    comm.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.barrier()  # fails, or is ended by the launcher
else:
    assert torch.equal(found["state"], torch.full((1000,), float(rank)))
    print("resumed", flush=True)
