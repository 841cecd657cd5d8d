"""Training with and without monitoring, in alternating windows of the same processes.

Arguments: KIND (eager or static), NET, ROUNDS, STEPS of a window. Worker 0 prints the seconds per
step in which its thread computed, by round: [[without, with], …].
"""

import gc
import sys
import tempfile
import time
from pathlib import Path

import small_nets
import torch
from loop import tell
from small_data import SHAPES, batches

from fleetx import fleet, monitor, static
from fleetx.static import layers

KIND, NET, ROUNDS, STEPS = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(1)
fleet.init(is_collective=True)
data = batches(NET, fleet.worker_index())

if KIND == "eager":
    model = fleet.distributed_model(getattr(small_nets, NET)())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    optimizer = fleet.distributed_optimizer(optimizer)

    def step(batch):
        """One training step of a module."""
        optimizer.zero_grad()
        optimizer.minimize(small_nets.loss_of(model, *batch))

else:
    x = static.data("x", [None, *SHAPES[NET][0][1:]], "float32")
    y = static.data("y", [None, 1], "int64")
    hidden = x
    for _ in range(4 if NET == "wide" else 2):
        hidden = layers.fc(hidden, size=1024 if NET == "wide" else 128, act="tanh")
    loss = layers.mean(layers.softmax_with_cross_entropy(layers.fc(hidden, size=2), y))
    fleet.distributed_optimizer(static.optimizer.Momentum(0.01, 0.9)).minimize(loss)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    program = static.default_main_program()

    def step(batch):
        """One run of a program."""
        exe.run(program, feed={"x": batch[0], "y": batch[1]}, fetch_list=[loss])


def window(measured, folder):
    """Return the CPU seconds per step of a window; `measured` writes and shows measurements."""
    if measured:
        rank, workers = fleet.worker_index(), fleet.worker_num()
        monitor.start(
            monitor.Settings(rank=rank, workers=workers, log_dir=folder, progress=rank == 0)
        )
    for batch in data[:2]:  # programs are prepared again when monitoring changes
        step(batch)
    fleet.barrier_worker()
    gc.collect()
    start = time.thread_time()
    for i in range(STEPS):
        step(data[i % len(data)])
    seconds = (time.thread_time() - start) / STEPS
    fleet.barrier_worker()
    monitor.stop()
    return seconds


with tempfile.TemporaryDirectory() as folder:
    window(False, Path(folder))
    rounds = []
    for number in range(ROUNDS):
        order = (False, True) if number % 2 else (True, False)
        times = {measured: window(measured, Path(folder)) for measured in order}
        rounds.append([times[False], times[True]])
if fleet.is_first_worker():
    tell(rounds=rounds)
