"""The same script under mpirun and srun: real workers that train together.

Needs Debian's openmpi-bin for the one and Slurm's daemons for the other; where they are not
installed these tests are skipped and say what is missing.
"""

import json
import shutil
import sys

import pytest
import slurm
from launching import Launch, clean_environment
from machines import Namespaces, machines

import warm_start
from ports import consecutive_ports

pytestmark = pytest.mark.slow  # starts jobs or servers

# Workers start with different weights and share a batch.
TRAIN = """
import json, pathlib, sys
import torch
from fleetx import fleet
from fleetx.runtime.worker_environment import detect

fleet.init(is_collective=True)
rank, workers = fleet.worker_index(), fleet.worker_num()
torch.manual_seed(rank)
model = torch.nn.Linear(3, 1).double()
torch.nn.init.constant_(model.weight, rank + 1.0)
model = fleet.distributed_model(model)
optimizer = fleet.distributed_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
batch = torch.arange(36.0, dtype=torch.float64).reshape(12, 3)
for step in range(2):
    optimizer.zero_grad()
    model(batch[rank::workers]).mean().backward()
    optimizer.step()
worker = detect()
pathlib.Path(sys.argv[1], f"{rank}.json").write_text(json.dumps({
    "launcher": worker.launcher, "workers": workers, "nodes": fleet.node_num(),
    "local": [fleet.local_rank(), worker.local_world_size], "master": worker.master,
    "weight": next(model.parameters()).tolist()[0],
}))
"""
# Rank 0's weight 1, minus two steps of 0.1 times the mean of the batch's rows.
WEIGHT = [pytest.approx(1 - 0.2 * (16.5 + column)) for column in range(3)]

# Instead of ssh: enters the namespace that has the address. A machine has a name of its own.
AGENT = """#!/bin/sh
host=$1; shift
exec ip netns exec {names}$((${{host##*.}} - 1)) unshare --uts sh -c "hostname $host.test; $*"
"""

needs_mpi = pytest.mark.skipif(
    shutil.which("mpirun") is None, reason="mpirun is missing: apt-get install openmpi-bin"
)
needs_slurm = pytest.mark.skipif(
    bool(slurm.missing()), reason=f"Slurm is incomplete: apt-get install {slurm.missing()}"
)


@pytest.fixture
def run(tmp_path, script):
    """Start commands together that each run the training script; return what the workers wrote."""
    path = script(TRAIN)

    def start(*commands, **variables):
        """Run commands that end with Python or fleetrun."""
        environment = clean_environment(**{"OMP_NUM_THREADS": "1", **variables})
        jobs = []
        try:
            for number, command in enumerate(commands):
                out = tmp_path / f"job{number}"
                out.mkdir()
                line = [*command, str(path), str(out)]
                jobs.append((out, Launch(line, tmp_path, environment, f"job{number}")))
            for _, job in jobs:
                assert job.end() == 0, job.stdout + job.stderr
        finally:
            for _, job in jobs:
                job.kill_whatever_is_left()
        return [[json.loads(f.read_text()) for f in sorted(out.iterdir())] for out, _ in jobs]

    return start


@needs_mpi
def test_two_jobs_of_mpirun_at_once(run, mpirun):
    """On one machine nothing has to be said; jobs do not meet each other's workers."""
    commands = [mpirun("--oversubscribe", "-n", "2", sys.executable) for _ in range(2)]
    jobs = run(*commands, **warm_start.variables())
    for workers in jobs:
        assert len(workers) == 2
        for rank, worker in enumerate(workers):
            assert (worker["launcher"], worker["workers"], worker["nodes"]) == ("mpi", 2, 1)
            assert worker["local"] == [rank, 2]
            assert worker["weight"] == WEIGHT
    assert jobs[0][0]["master"] != jobs[1][0]["master"]


@needs_mpi
def test_mpirun_on_two_machines(run, mpirun, tmp_path):
    """Unevenly; without ssh, but with a network between them that does not know their names."""
    with machines(2) as net:
        if not isinstance(net, Namespaces):
            pytest.skip("two machines for mpirun need network namespaces")
        agent = tmp_path / "agent"
        agent.write_text(AGENT.format(names=net.prefix(0)[-1][:-1]))
        agent.chmod(0o755)
        hosts = f"{net.hosts[0]}:2,{net.hosts[1]}:1"
        variables = {**warm_start.variables(), "MASTER_ADDR": net.hosts[0]}
        passed = [word for name, value in variables.items() for word in ("-x", f"{name}={value}")]
        options = ("--mca", "plm_rsh_agent", agent, *passed)
        first = (*net.prefix(0), "unshare", "--uts", "sh", "-c", 'hostname first.test; exec "$@"')
        command = mpirun(*options, "-H", hosts, "-n", "3", sys.executable)
        (workers,) = run((*first, "sh", *command))
    assert [w["local"] for w in workers] == [[0, 2], [1, 2], [0, 1]]
    assert {(w["launcher"], w["workers"], w["nodes"]) for w in workers} == {("mpi", 3, 2)}
    assert all(w["weight"] == WEIGHT for w in workers)


@needs_slurm
def test_steps_of_srun(run):
    """At once: three workers on two machines, unevenly; two on one; fleetrun on each machine."""
    fleetrun = (sys.executable, "-m", "fleetx.launch", "--nnodes=2", "--nproc_per_node=1")
    with slurm.cluster() as variables:
        master = f"{slurm.HOSTS[0]}:{consecutive_ports(1)}"
        uneven, alone, launched = run(
            ("srun", "--nodes=2", "--ntasks=3", sys.executable),
            ("srun", "--nodes=1", "--ntasks=2", sys.executable),
            ("srun", "--nodes=2", "--ntasks=2", *fleetrun, "--master", master),
            **variables,
            **warm_start.variables(),
        )
    assert [w["local"] for w in uneven] == [[0, 2], [1, 2], [0, 1]]
    assert [w["local"] for w in alone] == [[0, 2], [1, 2]]
    assert {(w["launcher"], w["workers"], w["nodes"]) for w in uneven} == {("slurm", 3, 2)}
    assert {w["nodes"] for w in alone} == {1}
    assert {(w["launcher"], w["workers"]) for w in launched} == {("paddle", 2)}
    assert all(w["weight"] == WEIGHT for w in [*uneven, *alone, *launched])
    assert uneven[0]["master"] != alone[0]["master"]
