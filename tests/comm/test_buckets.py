"""Buckets of gradients: how they are divided, and how their pieces are summed."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import warm_start
from fleetx.comm.buckets import growing_limits, make_buckets
from waiting import LIMIT

WORKERS = Path(__file__).parent / "workers"
MB = 2**20


def sizes(megabytes, **limits):
    tensors = [torch.empty(int(size * MB), dtype=torch.uint8) for size in megabytes]
    return [bucket.elements / MB for bucket in make_buckets(tensors, **limits)]


def test_buckets_begin_small_grow_to_the_limit_and_end_small():
    assert sizes([0.5] * 60, limit_mb=6) == [1, 2, 4, 6, 6, 6, 4, 1]
    assert sizes([3, 3, 3, 3, 3, 3, 0.5, 0.5], limit_mb=6) == [3, 3, 6, 6, 1]


def test_limits_end_with_what_was_asked_for():
    assert growing_limits(1, 6) == [1, 2, 4, 6]
    assert growing_limits(1, 0.5) == [0.5]


def test_what_is_small_travels_at_once():
    assert sizes([0.125, 0.25, 0.5]) == [0.875]


def test_a_limit_below_the_first_bucket_holds_for_it_too():
    assert sizes([0.25] * 4, limit_mb=0.25, last_mb=0.01) == [0.25] * 4


def test_buckets_have_one_type():
    tensors = [torch.empty(2), torch.empty(3, dtype=torch.float64), torch.empty(4)]
    found = {bucket.dtype: bucket.members for bucket in make_buckets(tensors)}
    assert found == {torch.float32: (0, 2), torch.float64: (1,)}


@pytest.mark.slow
def test_pieces_are_summed_in_two_layers(tmp_path):
    command = [sys.executable, "-m", "fleetx.launch", "--nproc_per_node", "4"]
    done = subprocess.run(
        [*command, "--log_dir", str(tmp_path), str(WORKERS / "hierarchy.py")],
        env=warm_start.environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    logs = [tmp_path / f"workerlog.{rank}" for rank in range(4)]
    assert all("equal" in log.read_text() for log in logs)
