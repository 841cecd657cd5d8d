"""Checkpoints of models with rows include the servers' tables."""

import os

import pytest
import torch
from jobs import run_job
from torch import nn

import fleetx
from fleetx import fleet

IDS = torch.arange(12).reshape(4, 3)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = fleetx.SparseEmbedding("words", 4)
        self.out = nn.Linear(12, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.out(self.embedding(ids).flatten(1))


def trained(folder: str, worker: int) -> dict[str, list[float]]:
    """Save after three steps, train on, load, and train the same again."""
    torch.manual_seed(3)
    model = fleet.distributed_model(Model())
    optimizer = fleet.distributed_optimizer(torch.optim.Adam(model.parameters(), lr=0.1))

    def steps() -> list[float]:
        for step in range(3):
            optimizer.zero_grad()
            loss = ((model(IDS + step + worker) - 1) ** 2).mean()
            loss.backward()
            optimizer.step()
        return values()

    def values() -> list[float]:
        with torch.no_grad():
            return model(IDS).flatten().tolist() + model.out.bias.tolist()

    found = {"before": steps()}
    written = fleet.save_checkpoint(folder, model=model, optimizer=optimizer, exact=True)
    with pytest.raises(ValueError, match=r"rows@tables.* cannot be the name"):
        fleet.save_checkpoint(folder, **{"rows@tables": 1})
    found["later"] = steps()
    assert fleet.load_checkpoint(folder, model=model, optimizer=optimizer) == {}
    found["loaded"] = values()
    found["again"] = steps()
    found["files"] = sorted(os.listdir(written))
    return found


def job(folder: str) -> dict[str, list[float]] | None:
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = False
    fleet.init(strategy=strategy)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        return None
    fleet.init_worker()
    found = trained(folder, fleet.worker_index())
    fleet.stop_worker()
    return found


@pytest.mark.slow  # starts a job
def test_tables_of_servers_are_part_of_a_checkpoint(tmp_path):
    for found in run_job(job, 2, 2, str(tmp_path)):
        assert "servers" in found["files"]
        assert found["later"] != found["before"]
        assert found["loaded"] == found["before"]
        assert found["again"] == found["later"]


def test_rows_of_this_process_are_part_of_a_checkpoint(tmp_path, fresh_fleet):
    fleet.init(is_collective=True)
    found = trained(str(tmp_path), 0)
    assert "servers" not in found["files"]
    assert found["later"] != found["before"]
    assert found["loaded"] == found["before"]
    assert found["again"] == found["later"]
