"""Where workers meet and how many share a machine, from the variables of launchers."""

import re

import pytest

from fleetx.runtime import network
from fleetx.runtime.job_numbers import first_host, tasks_per_node
from fleetx.runtime.role_environment import detect_server_job
from fleetx.runtime.worker_environment import detect

STEP = {
    "SLURM_PROCID": "6",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "7",
    "SLURM_STEP_NUM_NODES": "4",
    "SLURM_STEP_NODELIST": "node[08-10,12]-ib",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3),1",
    "SLURM_NODEID": "3",
    "SLURM_LOCALID": "0",
    "SLURM_JOB_ID": "41",
}
MPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
    "MASTER_ADDR": "10.0.0.1",
}


@pytest.mark.parametrize(
    ("nodelist", "first"),
    [
        ("node7", "node7"),
        ("node[3-5,9],gpu1", "node3"),
        ("node[1-3]-ib,gpu1", "node1-ib"),
        ("rack[2-3]node[007-009].site", "rack2node007.site"),
        ("gpu1,node[3-5]", "gpu1"),
    ],
)
def test_first_machine(nodelist, first):
    assert first_host(nodelist) == first


def test_lists_that_cannot_be_read():
    with pytest.raises(ValueError, match="list of machines ''"):
        first_host("")
    with pytest.raises(ValueError, match="'1,2x3' cannot be read"):
        tasks_per_node("1,2x3")


def test_uneven_step_of_slurm():
    worker = detect(STEP)
    assert (worker.rank, worker.world_size, worker.node_count) == (6, 7, 4)
    assert (worker.local_rank, worker.local_world_size) == (0, 1)
    assert worker.master.split(":")[0] == "node08-ib"
    assert detect({**STEP, "SLURM_NODEID": "1"}).local_world_size == 2
    with pytest.raises(ValueError, match="SLURM_NODEID is 4"):
        detect({**STEP, "SLURM_NODEID": "4"})


def test_uneven_job_of_mpi():
    worker = detect({**MPI, "OMPI_MCA_orte_num_nodes": "2"})
    assert (worker.local_rank, worker.local_world_size, worker.node_count) == (0, 1, 2)
    with pytest.raises(ValueError, match="-x MASTER_ADDR="):
        detect({name: value for name, value in MPI.items() if name != "MASTER_ADDR"})


def test_jobs_and_steps_have_ports_of_their_own():
    masters = {
        detect({**variables, **more}).master
        for variables, more in [
            (STEP, {}),
            (STEP, {"SLURM_STEP_ID": "1"}),
            (STEP, {"SLURM_JOB_ID": "42"}),
            (MPI, {"PMIX_NAMESPACE": "462290945"}),
            (MPI, {"PMIX_NAMESPACE": "462290946"}),
            (MPI, {"PMIX_NAMESPACE": "462290946", "MASTER_PORT": "6171"}),
        ]
    }
    assert len(masters) == 6
    assert "10.0.0.1:6171" in masters
    assert detect(MPI).master == "10.0.0.1:6170"


def test_one_task_of_slurm_is_nobody_special():
    assert detect({**STEP, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}).launcher == "none"


def test_network_through_which_workers_meet():
    assert network.interface_towards("127.0.0.1") == network.interface_of("127.0.0.1")
    assert network.interface_towards("no-such-machine.invalid") is None
    # A name for this machine says nothing about the network to the others.
    assert network.interface_towards("localhost") is None


SERVERS = {
    "TRAINING_ROLE": "TRAINER",
    "PADDLE_PSERVERS_IP_PORT_LIST": "127.0.0.1:6000",
    "PADDLE_TRAINERS_NUM": "2",
    "PADDLE_TRAINER_ID": "0",
}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            {"PADDLE_TRAINER_ID": "5"},
            "PADDLE_TRAINER_ID: worker index 5 is out of range: the job has 2 workers (0 to 1).",
        ),
        (
            {"PADDLE_TRAINERS_NUM": "1", "PADDLE_TRAINER_ID": "1"},
            "PADDLE_TRAINER_ID: worker index 1 is out of range: the job has 1 worker (0).",
        ),
        (
            {"PADDLE_PSERVERS_IP_PORT_LIST": "127.0.0.1:6000,127.0.0.1:99999"},
            "PADDLE_PSERVERS_IP_PORT_LIST: '127.0.0.1:99999' is not of the form host:port, with a "
            "port from 1 to 65535.",
        ),
        (
            {"PADDLE_PSERVERS_IP_PORT_LIST": "127.0.0.1"},
            "PADDLE_PSERVERS_IP_PORT_LIST: '127.0.0.1' is not of the form host:port, with a port "
            "from 1 to 65535.",
        ),
    ],
)
def test_a_place_in_a_server_job_that_cannot_be(changed, sentence):
    assert detect_server_job(SERVERS) is not None
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        detect_server_job({**SERVERS, **changed})


def test_addresses_of_workers_name_their_variable():
    listed = {"PADDLE_TRAINERS_NUM": "2", "PADDLE_TRAINER_ENDPOINTS": "127.0.0.1:x,127.0.0.1:2"}
    with pytest.raises(ValueError, match=r"^PADDLE_TRAINER_ENDPOINTS: '127\.0\.0\.1:x' is not of"):
        detect({**listed, "PADDLE_TRAINER_ID": "0"})
