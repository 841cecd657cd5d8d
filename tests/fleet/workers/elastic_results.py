"""What the workers of an elastic job have recorded, compared with one process that trains alone."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from elastic_worker import SAMPLES, Numbers, make_model

from fleetx.data.elastic_batches import EpochPlan


def status_of(folder: Path) -> tuple[int, int, int]:
    """Return the newest epoch, finished steps and group size that a worker has noted."""
    found = []
    for path in folder.glob("status.*"):
        parts = path.read_text().split()
        if len(parts) == 3:
            found.append((int(parts[0]), int(parts[1]), int(parts[2])))
    return max(found, default=(0, 0, 0))


def used_samples(folder: Path) -> dict[int, Counter[int]]:
    """Return how often each sample was used in a finished step, by epoch."""
    used: dict[int, Counter[int]] = {}
    for path in folder.glob("ids.*"):
        for line in path.read_text().splitlines():
            for epoch, index in json.loads(line)[0]:
                used.setdefault(epoch, Counter())[index] += 1
    return used


def samples_of_steps(folder: Path) -> Counter[int]:
    """Return how many samples each finished step has used, by its number from 1."""
    counts: Counter[int] = Counter()
    for path in folder.glob("ids.*"):
        for line in path.read_text().splitlines():
            ids, step = json.loads(line)
            counts[step] += len(ids)
    return counts


def require_each_sample_once(used: dict[int, Counter[int]], epochs: int) -> None:
    """Check the epochs that were finished, and that nothing is used twice in the last one."""
    assert set(range(epochs)) <= set(used) <= set(range(epochs + 1))
    for epoch in range(epochs):
        assert used[epoch] == Counter(range(SAMPLES))
    assert used.get(epochs, Counter()) <= Counter(range(SAMPLES))


def require_close(found: list[Any], wanted: list[Any], within: float = 1e-9) -> None:
    for one, other in zip(found, wanted, strict=True):
        pair = (torch.tensor(values, dtype=torch.float64) for values in (one, other))
        torch.testing.assert_close(*pair, rtol=within, atol=within / 100)


def train_alone(
    result: dict[str, Any], plan: EpochPlan, lr: float, momentum: float, merged: int = 1
) -> list[Any]:
    """Train in one process with the steps and the first values of a job; return the parameters.

    Steps have `merged` batches.
    """
    sizes: list[int] = result["sizes"]
    torch.manual_seed(result["first"])
    model, data = make_model(), Numbers()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, gamma=0.9)
    epoch = used = 0
    for number, size in enumerate(size for size in sizes for _ in range(merged)):
        total = plan.total(used, size)
        samples = [data[index] for index in plan.order(epoch)[used : used + total]]
        x, y = (torch.stack([sample[i] for sample in samples]) for i in (1, 2))  # type: ignore[misc]
        (model(x) - y).square().mean().div(merged).backward()
        if (number + 1) % merged == 0:
            optimizer.step()
            optimizer.zero_grad()
        scheduler.step()
        used += total
        if used == SAMPLES:
            epoch, used = epoch + 1, 0
    return [p.tolist() for p in model.parameters()]


def plan_of(batch_size: int = 2, global_batch_size: int | None = None) -> EpochPlan:
    return EpochPlan(
        length=SAMPLES,
        batch_size=global_batch_size or batch_size,
        keeps_global=global_batch_size is not None,
        shuffle=True,
        seed=0,
    )


def require_like_one_process(
    folder: Path, global_batch: int, within: float = 1e-9
) -> list[dict[str, Any]]:
    """Check results with a kept global batch; return them.

    A worker may be lost after a finished step and before it has recorded its samples; that they
    were used is in the parameters. Nothing may be used twice.
    """
    results = [json.loads(path.read_text()) for path in sorted(folder.glob("result.*"))]
    assert len({json.dumps(r["parameters"]) for r in results}) == 1
    plan = plan_of(global_batch_size=global_batch)
    alone = train_alone(results[0], plan, 0.1, 0.9)
    require_close(results[0]["parameters"], alone, within)
    counts = used_samples(folder).values()
    assert all(count <= Counter(range(SAMPLES)) for count in counts)
    return results
