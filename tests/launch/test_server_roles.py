"""Roles in server jobs: under mpirun, by index, and where none was given."""

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec

import pytest
from launching import clean_environment

import warm_start
from ports import consecutive_ports
from waiting import LIMIT

pytestmark = pytest.mark.slow  # starts jobs or servers

needs_mpi = pytest.mark.skipif(
    shutil.which("mpirun") is None or find_spec("mpi4py") is None,
    reason="mpirun is missing: apt-get install openmpi-bin"
    if shutil.which("mpirun") is None
    else "mpi4py is missing: pip install 'fleetx[mpi]'",
)

# A program of Paddle 1.x, as its documents have it.
LEGACY = """
import sys
import numpy as np
import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base.role_maker import PaddleCloudRoleMaker
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet
from paddle.fluid.transpiler.distribute_transpiler import DistributeTranspilerConfig

fleet.init(PaddleCloudRoleMaker() if "cloud" in sys.argv else None)
config = DistributeTranspilerConfig()
config.sync_mode = "sync" in sys.argv
x = fluid.layers.data(name="x", shape=[4], dtype="float32")
y = fluid.layers.data(name="y", shape=[1], dtype="float32")
loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))
optimizer = fleet.distributed_optimizer(fluid.optimizer.SGD(0.05), config)
optimizer.minimize(loss)
exe = fluid.Executor(fluid.CPUPlace())
if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
if fleet.is_worker():
    fleet.init_worker()
    exe.run(fleet.startup_program)
    random = np.random.RandomState(fleet.worker_index())
    for _ in range(50):
        rows = random.randn(16, 4).astype("float32")
        wanted = rows.sum(1, keepdims=True)
        cost = exe.run(fleet.main_program, feed={"x": rows, "y": wanted}, fetch_list=[loss])[0]
    assert float(cost) < 0.01, cost
    learnt = f"worker {fleet.worker_index()} of {fleet.worker_num()} learnt"
    print(learnt, flush=True)
    with open(f"learnt.{fleet.worker_index()}", "w") as file:
        file.write(learnt)
    if fleet.is_first_worker():
        fleet.save_persistables(exe, "saved")
    fleet.stop_worker()
"""


@needs_mpi
def test_a_program_of_paddle_1_under_mpirun(script, mpirun, tmp_path):
    path = script(LEGACY)
    run = subprocess.run(
        mpirun("--oversubscribe", "-n", "4", sys.executable, path, "sync"),
        cwd=tmp_path,
        env=clean_environment(**warm_start.variables()),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert run.returncode == 0, run.stderr
    # mpirun passes output on in pieces, which may be mixed or cut at the end: files are certain.
    assert {path.read_text() for path in tmp_path.glob("learnt.*")} == {
        "worker 0 of 2 learnt",
        "worker 1 of 2 learnt",
    }
    assert (tmp_path / "saved/fc_0.w_0").exists()


def test_a_program_of_paddle_1_under_fleetrun(fleetrun, script, tmp_path):
    script(LEGACY)
    one = ("--server_num=1", "--worker_num=1")
    run = fleetrun(*one, "train.py", "cloud", env=warm_start.variables())
    assert run.end() == 0, run.stderr
    assert "worker 0 of 1 learnt" in run.stdout
    assert (tmp_path / "saved/fc_0.w_0").exists()


def test_a_process_that_nobody_gave_a_role():
    code = (
        "from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet\n"
        "fleet.init()\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=clean_environment(**warm_start.variables()),
        capture_output=True,
        text=True,
    )
    assert "fleet.init() was given no role maker, and without mpirun" in run.stderr.splitlines()[-1]


GENERAL = """
import json, sys
from fleetx.fleet.roles.general_role_maker import GeneralRoleMaker

role = GeneralRoleMaker(**json.loads(sys.argv[1]))
print(role.all_gather(role.role_id() + 10 * role.is_server(), "all"), role.current_endpoint)
role.barrier_all()
"""


@pytest.mark.parametrize("where", ["path", "http_ip_port"])
def test_general_roles_meet_where_the_script_says(tmp_path, where):
    port = consecutive_ports(1)
    arguments = {where: f"127.0.0.1:{port}" if where == "http_ip_port" else str(tmp_path / "meet")}
    places = [
        {"TRAINING_ROLE": "PSERVER", "PADDLE_PSERVER_ID": "0"},
        {"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": "0"},
    ]
    lists = {
        "PADDLE_PSERVERS_IP_PORT_LIST": "127.0.0.1:7001",
        "PADDLE_TRAINER_ENDPOINTS": "127.0.0.1:7002",
    }
    running = [
        subprocess.Popen(
            [sys.executable, "-c", GENERAL, json.dumps(arguments)],
            env=clean_environment(**lists, **place, **warm_start.variables()),
            stdout=subprocess.PIPE,
            text=True,
        )
        for place in places
    ]
    found = [process.communicate(timeout=LIMIT)[0] for process in running]
    assert found == ["[0, 10] 127.0.0.1:7001\n", "[0, 10] 127.0.0.1:7002\n"]
