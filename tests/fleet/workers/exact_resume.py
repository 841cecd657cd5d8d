"""Trains with everything random that a script may have, and resumes wherever it was killed.

    fleetrun --max_restart N exact_resume.py FOLDER STEPS TECHNIQUE

Augmentation draws from Python's and NumPy's generators, dropout and the order of the samples from
torch's; a scheduler, momentum and the technique have states. Each worker writes its process id and
progress, and at the end a checksum of its parameters, its learning rate and its next draws.
"""

import hashlib
import json
import os
import random
import sys
from pathlib import Path

import numpy as np
import torch

from fleetx import fleet

TECHNIQUES = {
    "none": {},
    "dgc": {"dgc": True, "dgc_configs": {"sparsity": [0.9], "rampup_begin_step": 2}},
    "amp": {"amp": True, "amp_configs": {"init_loss_scaling": 1024.0, "incr_every_n_steps": 2}},
}


class Samples(torch.utils.data.Dataset):
    """Random samples, changed at random whenever one is read."""

    def __len__(self):
        return 22

    def __getitem__(self, index):
        x = torch.full((12,), float(index))
        return x * random.uniform(0.9, 1.1) + np.random.normal(), torch.tensor(index % 3)


def main(folder, steps, technique):
    strategy = fleet.DistributedStrategy()
    for name, value in TECHNIQUES[technique].items():
        setattr(strategy, name, value)
    fleet.init(is_collective=True, strategy=strategy)
    rank = fleet.worker_index()
    (folder / f"pid.{rank}").write_text(str(os.getpid()))
    torch.manual_seed(3)
    model = torch.nn.Sequential(
        torch.nn.Linear(12, 40), torch.nn.ReLU(), torch.nn.Dropout(0.3), torch.nn.Linear(40, 3)
    )
    inner = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(inner, 5, 0.9)
    model = fleet.distributed_model(model)
    optimizer = fleet.distributed_optimizer(inner)
    random.seed(rank)
    np.random.seed(rank)
    torch.manual_seed(rank)
    data = fleet.resumable(torch.utils.data.DataLoader(Samples(), batch_size=4, shuffle=True))
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "data": data}
    saved = fleet.load_checkpoint(str(folder / "checkpoints"), **parts)
    step = saved["step"] if saved else 0
    while step < steps:
        for x, y in data:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x).float(), y)
            optimizer.minimize(loss)
            scheduler.step()
            step += 1
            (folder / f"step.{rank}").write_text(str(step))
            if step % 3 == 0 and step < steps:
                fleet.save_checkpoint(str(folder / "checkpoints"), exact=True, step=step, **parts)
            if step == steps:
                break
    content = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
    result = {
        "parameters": hashlib.sha256(content).hexdigest(),
        "rate": inner.param_groups[0]["lr"],
        "next": [random.random(), np.random.rand(), torch.rand(()).item()],
    }
    (folder / f"{rank}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
