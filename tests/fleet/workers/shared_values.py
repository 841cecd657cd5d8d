"""Share values between workers, and write the results."""

import json
import sys
from pathlib import Path

import numpy as np
import torch

from fleetx import fleet


class Own:
    """A class that other workers would have to import."""


fleet.init(is_collective=True)
rank = fleet.worker_index()
given = torch.tensor([1, 2 + rank], dtype=torch.int32)
half = torch.full((2,), 1.5 + rank, dtype=torch.bfloat16)
total, mean = fleet.all_reduce(given), fleet.all_reduce(given, "mean")
halves = fleet.all_reduce(half, "mean")
told = {
    "tensor": [total.tolist(), str(total.dtype), given.tolist()],
    "mean": [mean.tolist(), mean.dtype.is_floating_point],
    "half": [halves.tolist(), str(halves.dtype)],
    "number": [fleet.all_reduce(rank + 1), type(fleet.all_reduce(rank + 1)).__name__],
    "float": fleet.all_reduce(0.5 + rank, mode="max"),
    "array": [
        type(fleet.all_reduce(np.ones(2))).__name__,
        fleet.all_reduce(np.ones(2)).tolist(),
    ],
}
found = fleet.broadcast_object({"rank": rank, "x": torch.arange(3) + rank, "t": (1, None)}, 1)
told["object"] = [found["rank"], found["x"].tolist(), list(found["t"])]
try:
    fleet.broadcast_object(Own())
except TypeError as error:
    told["refused"] = str(error)
fleet.print("printed by worker", rank, file=sys.stderr)
(Path(sys.argv[1]) / f"{rank}.json").write_text(json.dumps(told))
