"""One worker of several can build programs alone; it waits for the others when they are needed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from fleetx import comm, static
from fleetx.fleet.roles.user_defined_role_maker import UserDefinedCollectiveRoleMaker
from fleetx.fleet.session import Fleet
from ports import free_endpoints

pytestmark = pytest.mark.usefixtures("fresh_fleet")


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """Worker 0 of two that the script names; there is no worker 1."""
    session = Fleet()
    endpoints = free_endpoints(2)
    session.init(UserDefinedCollectiveRoleMaker(0, endpoints), timeout_seconds=1)
    yield session
    comm.disconnect()


def build(fleet: Fleet) -> None:
    with static.program_guard(static.Program(), static.Program()):
        x = static.data("x", [None, 2])
        loss = static.layers.mean(static.layers.fc(x, 1))
        fleet.distributed_optimizer(static.optimizer.SGD(0.1)).minimize(loss)


@pytest.mark.slow
def test_a_program_is_built_without_the_others(fleet: Fleet) -> None:
    build(fleet)
    assert not torch.distributed.is_initialized()
    assert "c_allreduce_sum" in [op.type for op in fleet.main_program.global_block().ops]
    with pytest.raises(RuntimeError, match="worker 0 waited 1 s for worker 1 of 2"):
        static.Executor(static.CPUPlace()).run(fleet.startup_program)


@pytest.mark.slow
def test_a_barrier_waits(fleet: Fleet) -> None:
    with pytest.raises(RuntimeError, match="worker 0 waited 1 s for worker 1 of 2"):
        fleet.barrier_worker()


def test_a_model_waits(fleet: Fleet) -> None:
    with pytest.raises(RuntimeError, match="did not reach the others"):
        fleet.distributed_model(torch.nn.Linear(1, 1))


def test_a_later_job_of_one_worker_waits_for_nobody(fleet: Fleet) -> None:
    fleet.init(UserDefinedCollectiveRoleMaker(0, ["127.0.0.1:6170"]))
    fleet.barrier_worker()
    assert not comm.is_connected()
