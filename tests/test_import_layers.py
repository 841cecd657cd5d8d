"""What the layers promise beyond their imports, which `make lint` checks."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import warm_start
from fleetx.runtime import membership

ROOT = Path(__file__).resolve().parent.parent

PROGRAM = """
import importlib.util
import numpy as np
from fleetx import static
from fleetx.static import layers

for missing in ("fleetx.ps", "fleetx.kernels._index", "fleetx.kernels._rows"):
    assert importlib.util.find_spec(missing) is None, missing
x = static.data("x", [None, 4], "float32")
loss = layers.mean(layers.fc(x, 2))
static.optimizer.SGD(0.1).minimize(loss)
exe = static.Executor()
exe.run(static.default_startup_program())
(found,) = exe.run(feed={"x": np.ones((3, 4), "float32")}, fetch_list=[loss])
print("trained", np.isfinite(found).all())
"""


@pytest.mark.slow
def test_programs_train_without_the_servers_and_their_compiled_modules(tmp_path):
    leave_out = shutil.ignore_patterns("ps", "fleet", "*.so", "__pycache__")
    shutil.copytree(ROOT / "src" / "fleetx", tmp_path / "fleetx", ignore=leave_out)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, **warm_start.torch_variables(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "trained True\n"


@pytest.mark.usefixtures("fresh_fleet")
def test_fleet_says_below_where_the_process_is():
    from fleetx import fleet

    assert membership.own() is None
    role = fleet.UserDefinedRoleMaker(
        current_id=1,
        role=fleet.Role.WORKER,
        worker_num=3,
        server_endpoints=["127.0.0.1:1"],
    )
    fleet.init(role)
    place = membership.own()
    assert (place.worker_index(), place.worker_num()) == (1, 3)
    assert place.is_worker()
    assert not place.is_server()
