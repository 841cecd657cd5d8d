"""Collective layers of a program, run by all workers; each writes what it fetched as JSON."""

import json
import sys
from pathlib import Path

import numpy as np

from fleetx import fleet, static
from fleetx.static import layers
from fleetx.static.layers import collective

fleet.init(is_collective=True)
rank, workers = fleet.worker_index(), fleet.worker_num()
x = layers.data("x", shape=[2, 2], append_batch_size=False, dtype="float32")
x.stop_gradient = False
fetched = {
    "allreduce": collective.allreduce(x, reduce_type="max"),
    "c_allreduce": collective.c_allreduce(x),
    "c_allgather": collective.c_allgather(x, workers),
    "c_reducescatter": collective.c_reducescatter(x, workers),
}
for name, change in {
    "broadcast": lambda v: collective.broadcast(v, 1),
    "c_broadcast": lambda v: collective.c_broadcast(v, root=1),
    "all_reduce": lambda v: collective.all_reduce(v, collective.ReduceOp.MIN),
    "reduce": lambda v: collective.reduce(v, 1),
}.items():
    fetched[name] = layers.scale(x, 1.0)
    change(fetched[name])
parts = []
collective.all_gather(parts, x)
fetched["gathered"] = parts[1]
fetched["scattered"] = layers.scale(x, 1.0)
doubled = [layers.scale(x, 2.0), layers.scale(x, 3.0)]
collective.scatter(fetched["scattered"], doubled, src=0)
collective.barrier()
# The gradient of a sum of squares through each collective.
for name in ("c_allreduce", "c_allgather", "c_reducescatter"):
    loss = layers.reduce_sum(layers.square(fetched[name]))
    (fetched[f"{name}_gradient"],) = static.gradients(loss, x)
exe = static.Executor(static.CPUPlace())
value = np.array([[1, 2], [3, 4]], "float32") + 10 * rank
results = exe.run(feed={"x": value}, fetch_list=list(fetched.values()))
heard = {name: array.tolist() for name, array in zip(fetched, results, strict=True)}
Path(sys.argv[1], f"{rank}.json").write_text(json.dumps(heard))
