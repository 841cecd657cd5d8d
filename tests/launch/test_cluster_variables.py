"""fleetrun takes the machines of a job from the variables of clusters."""

import pytest
from test_several_machines import HOSTS, REPORT, told

from ports import consecutive_ports

pytestmark = pytest.mark.slow  # starts jobs or servers


def test_the_variables_of_the_kubeflow_trainer(fleetrun, script, tmp_path):
    script(REPORT)
    port = consecutive_ports(1)
    pet = {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "auto", "PET_MASTER_ADDR": "localhost"}
    runs = [
        fleetrun("train.py", env={**pet, "PET_MASTER_PORT": str(port), "PET_NODE_RANK": str(rank)})
        for rank in (1, 0)
    ]
    assert [run.end() for run in runs] == [0, 0], [run.stderr for run in runs]
    assert told(tmp_path, 1)["MASTER_ADDR"] == "localhost"


def test_the_variables_of_paddlecloud(fleetrun, script, tmp_path):
    script(REPORT)
    port = consecutive_ports(2, HOSTS)
    cloud = {
        "PADDLE_TRAINERS": ",".join(HOSTS),
        "TRAINER_PORTS_NUM": "2",
        "PADDLE_PORT": str(port),
        "PADDLE_TRAINERS_NUM": "2",
    }
    runs = [
        fleetrun(
            *("--use_paddlecloud", "--selected_gpus=0,1", "train.py"),
            env={**cloud, "POD_IP": host, "PADDLE_TRAINER_ID": str(rank)},
        )
        for rank, host in enumerate(HOSTS)
    ]
    assert [run.end() for run in runs] == [0, 0], [run.stderr for run in runs]
    assert told(tmp_path, 3)["PADDLE_CURRENT_ENDPOINT"] == f"127.0.0.2:{port + 1}"


def test_the_endpoints_that_paddlecloud_lists(fleetrun, script, tmp_path):
    """Paddlecloud reserves as many ports as a machine has GPUs; the job may use fewer."""
    script(REPORT)
    port = consecutive_ports(6, HOSTS)
    listed = [f"{host}:{port + 3 * i + k}" for i, host in enumerate(HOSTS) for k in range(3)]
    cloud = {
        "PADDLE_TRAINERS": ",".join(HOSTS),
        "TRAINER_PORTS_NUM": "3",
        "DISTRIBUTED_TRAINER_ENDPOINTS": ",".join(listed),
    }
    runs = [
        fleetrun("--gpus=0,1", "train.py", env={**cloud, "POD_IP": h, "PADDLE_TRAINER_ID": str(i)})
        for i, h in enumerate(HOSTS)
    ]
    assert [run.end() for run in runs] == [0, 0], [run.stderr for run in runs]
    expected = [*listed[:2], *listed[3:5]]
    for rank in range(4):
        assert told(tmp_path, rank)["PADDLE_TRAINER_ENDPOINTS"] == ",".join(expected)
        assert told(tmp_path, rank)["PADDLE_CURRENT_ENDPOINT"] == expected[rank]


@pytest.mark.parametrize(
    ("listed", "says"),
    [
        ("127.0.0.1:1,127.0.0.2", "'127.0.0.2' is not of the form host:port"),
        ("127.0.0.1:1,127.0.0.9:1", "127.0.0.9:1, which is not one of PADDLE_TRAINERS"),
        ("127.0.0.1:1", "lists 0 endpoints of 127.0.0.2, but every machine starts 1 workers"),
    ],
)
def test_endpoints_of_paddlecloud_that_do_not_fit(fleetrun, script, listed, says):
    script(REPORT)
    cloud = {"PADDLE_TRAINERS": ",".join(HOSTS), "TRAINER_PORTS_NUM": "1", "POD_IP": HOSTS[0]}
    more = {"PADDLE_TRAINER_ID": "0", "DISTRIBUTED_TRAINER_ENDPOINTS": listed}
    run = fleetrun("--gpus=0", "train.py", env={**cloud, **more})
    assert run.end() != 0
    assert says in run.stderr
    assert "Traceback" not in run.stderr
