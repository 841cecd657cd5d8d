"""Train a tiny BERT with recompute on the text of a folder; every worker writes what it saw."""

import json
import sys
from pathlib import Path

from fleetx import fleet, static
from fleetx.applications import BertBase

folder, out = sys.argv[1:]
fleet.init(is_collective=True)
model = BertBase("en", layers=2, hidden=8, heads=2, inner=16, words=40, positions=32, dropout=0.0)
model.startup_prog.random_seed = 1
loader = model.get_train_dataloader(folder, batch_size=256, max_seq_len=24)
strategy = fleet.DistributedStrategy()
strategy.recompute = True
strategy.recompute_configs = {"checkpoints": model.checkpoints}
optimizer = fleet.distributed_optimizer(static.optimizer.Adam(0.02), strategy)
optimizer.minimize(model.loss)
executor = static.Executor(static.CPUPlace())
executor.run(model.startup_prog)
losses, seen = [], []
for _ in range(3):
    for feed in loader():
        (loss,) = executor.run(model.main_prog, feed=feed, fetch_list=[model.loss])
        losses.append(float(loss[0]))
        seen.append(feed[0]["src_ids"].shape())
total = {key: float(value.double().sum()) for key, value in model.module_state().items()}
result = {"losses": losses, "steps": len(seen), "weights": total}
Path(out, f"bert.{fleet.worker_index()}").write_text(json.dumps(result))
