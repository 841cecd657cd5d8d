"""Role makers: the role of this process, from every launcher's variables and from the script."""

from __future__ import annotations

import os
from typing import Any

import pytest

from fleetx.fleet.roles.role_maker import PaddleCloudRoleMaker, Role, RoleMakerBase
from fleetx.fleet.roles.user_defined_role_maker import (
    UserDefinedCollectiveRoleMaker,
    UserDefinedRoleMaker,
)

LAUNCHERS = ("PADDLE_", "OMPI_", "PMI_", "SLURM_", "MPI_")
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
         "TRAINING_ROLE", "POD_IP")  # fmt: skip


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(LAUNCHERS) or name in NAMES:
            monkeypatch.delenv(name)


def use(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_nobody_launched_it() -> None:
    for is_collective in (True, False):
        role = PaddleCloudRoleMaker(is_collective=is_collective)
        assert role.is_non_distributed()
        assert role.is_first_worker()
        assert (role.worker_index(), role.worker_num(), role.node_num()) == (0, 1, 1)
        assert not role.is_server()
        assert role.all_gather(5) == [5]
        assert role.all_reduce([1, 2]).tolist() == [1, 2]
        role.barrier_worker()


def test_fleetrun(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoints = "10.0.0.1:6170,10.0.0.1:6171,10.0.0.2:6170,10.0.0.2:6171"
    use(monkeypatch, PADDLE_TRAINER_ID="3", PADDLE_TRAINERS_NUM="4")
    use(monkeypatch, PADDLE_TRAINER_ENDPOINTS=endpoints)
    role = PaddleCloudRoleMaker(is_collective=True)
    assert (role.worker_index(), role.worker_num()) == (3, 4)
    assert (role.node_num(), role.local_rank()) == (2, 1)
    assert role.is_worker()
    assert not role.is_first_worker()
    assert not role.is_non_distributed()
    assert role.worker_endpoints() == endpoints.split(",")
    assert role.worker.master == "10.0.0.1:6170"


@pytest.mark.parametrize(
    ("variables", "launcher"),
    [
        (
            {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2",
             "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"},
            "torch",
        ),
        (
            {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4",
             "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
             "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"},
            "mpi",
        ),
        (
            {"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_STEP_ID": "0", "SLURM_LOCALID": "1",
             "SLURM_NNODES": "2", "SLURM_NODELIST": "node[1-2]", "SLURM_JOB_ID": "7"},
            "slurm",
        ),
    ],
)  # fmt: skip
def test_other_launchers(
    variables: dict[str, str], launcher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, **variables)
    role = PaddleCloudRoleMaker(is_collective=True)
    assert role.worker.launcher == launcher
    assert (role.worker_index(), role.worker_num()) == (1, 4)
    assert (role.node_num(), role.local_rank()) == (2, 1)
    assert len(role.worker_endpoints()) == 4


def test_worker_of_a_server_job(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, PADDLE_PSERVERS_IP_PORT_LIST="10.0.0.1:1,10.0.0.2:1")
    use(monkeypatch, PADDLE_TRAINERS_NUM="2", TRAINING_ROLE="TRAINER", PADDLE_TRAINER_ID="1")
    role = PaddleCloudRoleMaker()
    assert role.is_worker()
    assert role.role_id() == role.worker_index() == 1
    assert (role.worker_num(), role.server_num()) == (2, 2)
    with pytest.warns(UserWarning, match="PADDLE_WITH_GLOO"):
        assert role.all_gather(3) == 3


def test_server_of_a_server_job(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, PADDLE_PSERVERS_IP_PORT_LIST="10.0.0.1:1,10.0.0.2:1")
    use(monkeypatch, PADDLE_TRAINERS_NUM="2", TRAINING_ROLE="PSERVER")
    use(monkeypatch, POD_IP="10.0.0.2", PADDLE_PORT="1")
    role = PaddleCloudRoleMaker()
    assert role.is_server()
    assert role.server_index() == role.role_id() == 1
    with pytest.raises(RuntimeError, match="not a worker"):
        role.local_rank()


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({}, "Can not find PADDLE_TRAINERS_NUM, please check your environment."),
        ({"PADDLE_TRAINERS_NUM": "2"}, "Can not find TRAINING_ROLE"),
        ({"PADDLE_TRAINERS_NUM": "2", "TRAINING_ROLE": "BOSS"}, "must be PSERVER or TRAINER"),
        ({"PADDLE_TRAINERS_NUM": "2", "TRAINING_ROLE": "TRAINER"}, "PADDLE_TRAINER_ID"),
        ({"PADDLE_TRAINERS_NUM": "two", "TRAINING_ROLE": "TRAINER"}, "whole number"),
        ({"PADDLE_TRAINERS_NUM": "2", "TRAINING_ROLE": "PSERVER"}, "PADDLE_PORT"),
        ({"PADDLE_TRAINERS_NUM": "2", "TRAINING_ROLE": "PSERVER", "PADDLE_PORT": "9",
          "POD_IP": "1.1.1.1"}, "lists 10.0.0.1:1"),
    ],
)  # fmt: skip
def test_incomplete_server_jobs(
    variables: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, PADDLE_PSERVERS_IP_PORT_LIST="10.0.0.1:1", **variables)
    with pytest.raises(ValueError, match=says):
        PaddleCloudRoleMaker().generate_role()


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"PADDLE_GLOO_RENDEZVOUS": "5"}, "1 \\(HDFS\\), 2"),
        ({"PADDLE_GLOO_RENDEZVOUS": "2"}, "PADDLE_GLOO_FS_PATH"),
        ({"PADDLE_GLOO_RENDEZVOUS": "3"}, "PADDLE_GLOO_HTTP_ENDPOINT"),
        ({"PADDLE_GLOO_RENDEZVOUS": "1", "PADDLE_GLOO_FS_PATH": "/d"}, "PADDLE_GLOO_FS_NAME"),
        ({"PADDLE_GLOO_RENDEZVOUS": "1", "PADDLE_GLOO_FS_PATH": "/d", "PADDLE_GLOO_FS_UGI": "u",
          "PADDLE_GLOO_FS_NAME": "hdfs://n"}, "a rendezvous in HDFS is not supported"),
    ],
)  # fmt: skip
def test_wrong_meeting_places(
    variables: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, PADDLE_PSERVERS_IP_PORT_LIST="10.0.0.1:1", PADDLE_TRAINERS_NUM="1")
    use(monkeypatch, TRAINING_ROLE="TRAINER", PADDLE_TRAINER_ID="0", PADDLE_WITH_GLOO="1")
    use(monkeypatch, **variables)
    with pytest.raises(ValueError, match=says):
        PaddleCloudRoleMaker().generate_role()


def test_told_by_the_script() -> None:
    role = UserDefinedRoleMaker(1, Role.SERVER, 2, ["a:1", "b:1"])
    assert role.is_server()
    assert (role.server_index(), role.worker_num(), role.server_num()) == (1, 2, 2)
    role = UserDefinedRoleMaker(server_endpoints=["a:1"], worker_endpoints=["a:2", "b:2"])
    assert (role.worker_num(), role.node_num()) == (2, 2)
    worker = UserDefinedCollectiveRoleMaker(2, ["a:1", "b:1", "b:2"])
    assert worker.is_collective
    assert (worker.worker_index(), worker.local_rank(), worker.node_num()) == (2, 1, 2)
    assert worker.worker.master == "a:1"


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"server_endpoints": None}, TypeError, "string list"),
        ({"server_endpoints": "a:1"}, TypeError, "string list"),
        ({"server_endpoints": [1]}, TypeError, "every element"),
        ({"server_endpoints": []}, ValueError, "greater than 0"),
        ({"server_endpoints": ["a:1", "a:1"]}, ValueError, "a:1 twice"),
        ({"server_endpoints": ["a:1"], "role": 7}, TypeError, "role must be as Role"),
        ({"server_endpoints": ["a:1"], "worker_num": 0}, ValueError, "worker_num must"),
        ({"server_endpoints": ["a:1"], "worker_num": "2"}, TypeError, "must be as int"),
        ({"server_endpoints": ["a:1"], "worker_num": 1, "current_id": -1}, ValueError, "equal to"),
        ({"server_endpoints": ["a:1"], "worker_num": 1, "current_id": "0"}, TypeError, "as int"),
        ({"server_endpoints": ["a:1"], "worker_num": 1, "current_id": 1, "role": Role.SERVER},
         ValueError, "server_endpoints"),
    ],
)  # fmt: skip
def test_told_something_wrong(arguments: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        UserDefinedRoleMaker(**arguments)


def test_collective_worker_told_something_wrong() -> None:
    with pytest.raises(ValueError, match="less than or equal"):
        UserDefinedCollectiveRoleMaker(1, ["a:1"])


def test_the_base_knows_nothing() -> None:
    role = RoleMakerBase()
    for question in (role.is_worker, role.worker_num, role.server_index, role.node_num):
        with pytest.raises(NotImplementedError, match="does not determine the role"):
            question()
    assert role.worker_endpoints() == []
    assert "role: None" in role.to_string()


def test_worlds() -> None:
    role = PaddleCloudRoleMaker(is_collective=True)
    with pytest.raises(ValueError, match="comm_world must in"):
        role.barrier("everybody")
    with pytest.raises(ValueError, match="has no servers"):
        role.barrier("server")
    with pytest.raises(ValueError, match="unknown mode"):
        role.all_reduce(1, "mean")
    with pytest.raises(TypeError, match="only numbers"):
        role.all_gather("text")
