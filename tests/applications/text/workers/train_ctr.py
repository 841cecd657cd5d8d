"""Train wide and deep with parameter servers on Criteo lines; every worker writes its losses."""

import json
import sys
from pathlib import Path

from fleetx import fleet, static
from fleetx.applications import CriteoSizes, MultiSlotCTR

path, out = sys.argv[1:]
fleet.init()
model = MultiSlotCTR(CriteoSizes(ids=1001, row=4, hidden=(8, 8)), is_distributed=True)
model.startup_prog.random_seed = 1
loader = model.load_criteo_from_file(path, batch_size=32)
strategy = fleet.DistributedStrategy()
strategy.a_sync = False
optimizer = fleet.distributed_optimizer(static.optimizer.Adam(0.02), strategy)
optimizer.minimize(model.loss)
if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
    sys.exit()
executor = static.Executor(static.CPUPlace())
executor.run(static.default_startup_program())
fleet.init_worker()
means, areas = [], []
for _ in range(6):
    losses = []
    for feed in loader():
        loss, auc, _ = executor.run(
            static.default_main_program(), feed=feed, fetch_list=[model.loss, *model.target]
        )
        losses.append(float(loss[0]))
    means.append(sum(losses) / len(losses))
    areas.append(float(auc[0]))
result = {"means": means, "areas": areas, "steps": len(losses)}
Path(out, f"ctr.{fleet.worker_index()}").write_text(json.dumps(result))
fleet.stop_worker()
