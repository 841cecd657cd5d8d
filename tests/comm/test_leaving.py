"""Leaving a process group while its threads, or other workers, are still at work."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch.distributed as dist

import waiting
import warm_start
from fleetx.comm import agreement

PROGRAM = """
import torch
import torch.distributed as dist
from fleetx.comm import world

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
# Nothing else holds these tensors: a thread of the group returns them to Python, one by one.
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


@pytest.mark.slow
def test_no_worker_leaves_while_others_are_still_connecting(tmp_path):
    script = Path(__file__).parent / "workers" / "leave_at_once.py"
    command = [sys.executable, "-m", "fleetx.launch", "--nproc_per_node=2", script, tmp_path]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=warm_start.environment(),
        capture_output=True,
        text=True,
        timeout=waiting.LIMIT,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("all connected: True") == 1  # of worker 0, whose output is shown
