"""Trains, validates and measures a tiny ResNet with `MultiGPUTrainer`; writes what it returned."""

import json
import sys

import fleetx as X
from fleetx import fleet, static

fleet.init(is_collective=True)
model = X.applications.Resnet50(class_dim=3, image_size=32, depth=18, width=4)
loader = model.get_train_dataloader(sys.argv[1], batch_size=2)
checking = model.get_val_dataloader(sys.argv[1], batch_size=3)
strategy = fleet.DistributedStrategy()
strategy.amp = True
optimizer = static.optimizer.Momentum(0.02, 0.9)
fleet.distributed_optimizer(optimizer, strategy).minimize(model.loss)
trainer = X.MultiGPUTrainer()
trainer.fit(model, loader, epoch=2, start_step=1)
means = trainer.val(model, checking, ["acc5", "acc1"], current_epoch=2)
again = trainer.val(model, checking, ["acc1"])
batches = trainer.benchmark_val(model, checking, ["acc1"])
speeds = [
    trainer.quick_benchmark(model, loader, start_step=1, end_step=3),
    trainer.benchmark(model, loader, epoch=1, start_step=2),
]
result = {"means": means, "again": again, "batches": batches, "speeds": speeds}
with open(f"out.{fleet.worker_index()}", "w") as stream:
    json.dump(result, stream)
