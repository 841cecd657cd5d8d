"""The place of a process in its job, read in one module for every launcher."""

import pytest
from launching import clean_environment

from fleetx.runtime import environment


@pytest.fixture(autouse=True)
def _nobody_started_us(monkeypatch):
    for name in list(environment.os.environ):
        if name not in clean_environment():
            monkeypatch.delenv(name)


def test_alone():
    assert (environment.worker_index(), environment.worker_num()) == (0, 1)
    assert environment.worker_endpoints() == []
    assert environment.heartbeat_file() == ""


@pytest.mark.parametrize(
    ("rank", "size"),
    [
        ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM"),
        ("RANK", "WORLD_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ],
)
def test_every_launcher(monkeypatch, rank, size):
    monkeypatch.setenv(rank, "1")
    monkeypatch.setenv(size, "3")
    assert (environment.worker_index(), environment.worker_num()) == (1, 3)
