"""Rounded sums of which each worker adds up a share, several in a row; every worker writes what it
sent and what arrived as JSON."""

import json
import sys
from pathlib import Path

import torch

from fleetx import fleet
from fleetx.comm import world
from fleetx.comm.share_sums import share_sums
from fleetx.techniques.flat_bucket import RESIDUAL, SUM_RESIDUAL, FlatBucket
from fleetx.techniques.rounded_sum import GatheredSum, SumOfShares

fleet.init(is_collective=True, timeout_seconds=177)
rank = fleet.worker_index()
random = torch.Generator().manual_seed(rank)
sums = share_sums()
found = []
for size in (1, 300, 5000):
    for bits in (8, 4):
        bucket = FlatBucket([torch.zeros(size)])
        whole = FlatBucket([torch.zeros(size)])
        single = FlatBucket([torch.zeros(3)])
        double = FlatBucket([torch.zeros(2, dtype=torch.float64)])
        for _ in range(3):
            sent = torch.randn(size, generator=random)
            bucket.flat.copy_(sent)
            whole.flat.copy_(sent)
            single.flat.copy_(torch.randn(3, generator=random))
            double.flat.copy_(torch.randn(2, generator=random))
            ridden = [single.flat.tolist(), double.flat.tolist()]
            handle = SumOfShares(bucket, bits, [single, double], sums)
            gathered = GatheredSum(whole, bits, [])
            handle.wait()
            gathered.wait()
            found.append(
                {
                    "bits": bits,
                    "sent": sent.tolist(),
                    "sum": bucket.flat.tolist(),
                    "residual": bucket.memory(RESIDUAL).tolist(),
                    "sum_residual": bucket.memory(SUM_RESIDUAL).tolist(),
                    "ridden": ridden,
                    "riders": [single.flat.tolist(), double.flat.tolist()],
                    "gathered": whole.flat.tolist(),
                }
            )
for group in (world.ring(1), sums._group):
    cpu = torch.device("cpu")
    found[-1].setdefault("timeouts", []).append(group._get_backend(cpu).options._timeout.seconds)
fleet.barrier_worker()
(Path(sys.argv[1]) / f"{rank}.json").write_text(json.dumps(found))
