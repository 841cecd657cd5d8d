"""Leaving a process group while its threads, or other workers, are still at work."""

import subprocess
import sys
import threading

import torch.distributed as dist

import waiting
from fleetx.comm import agreement

PROGRAM = """
import torch
import torch.distributed as dist
from fleetx.comm import world

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
# Nobody else holds these tensors: a thread of the group returns them to Python, one by one.
dist.all_reduce_coalesced([torch.ones(1) for _ in range(10_000)], async_op=True)
world.disconnect()
print("left", dist.is_initialized())
"""


def test_threads_that_return_tensors_to_python_are_waited_for():
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=waiting.LIMIT)
    assert (done.returncode, done.stdout) == (0, "left False\n"), done.stderr


def test_worker_0_waits_until_all_have_read_that_they_agree():
    """The store ends with worker 0, which may be right after the agreement."""
    store, asked = dist.HashStore(), {"the call": "fleet.init"}
    others = [
        threading.Thread(target=agreement.agree, args=(store, rank, 3, asked, waiting.LIMIT))
        for rank in (1, 2)
    ]
    for other in others:
        other.start()
    agreement.agree(store, 0, 3, asked, waiting.LIMIT)
    heard = store.check(["heard/1", "heard/2"])
    for other in others:
        other.join()
    assert heard
