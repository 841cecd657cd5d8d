"""Sums buckets of several pieces in two layers and compares with what they must hold."""

import torch

from fleetx import fleet
from fleetx.comm.gradient_all_reduce import AllReduceSettings, GradientAllReduce
from fleetx.comm.hierarchy import PIECE_BYTES

fleet.init(is_collective=True)
elements = PIECE_BYTES // 4 * 2 + 5
base = torch.arange(elements) % 100
all_reduce = GradientAllReduce(AllReduceSettings(group_size=2))
buckets = [(base + number + fleet.worker_index()).float() for number in range(2)]
handles = [all_reduce.start(bucket) for bucket in buckets]
for handle in handles:
    handle.wait()
count = fleet.worker_num()
for number, bucket in enumerate(buckets):
    assert torch.equal(bucket, (count * (base + number) + sum(range(count))).float())
print("equal", flush=True)
