"""fleetrun --cpu_affinity: which cores workers run on."""

import json
import os

import pytest

from fleetx.launch.cpu_affinity import by_node, choose
from fleetx.launch.launch_errors import LaunchError

SCRIPT = """
import json, os
with open("cores." + os.environ["RANK"], "w") as file:
    json.dump(sorted(os.sched_getaffinity(0)), file)
"""


@pytest.mark.parametrize(
    ("text", "workers", "cores", "expected"),
    [
        ("auto", 2, range(4), [{0, 1}, {2, 3}]),
        ("auto", 2, [1, 3, 5], [{1}, {3}]),
        ("auto", 1, range(4), [set()]),
        ("auto", 3, range(2), [set(), set(), set()]),
        ("none", 2, range(4), [set(), set()]),
        ("0-1;3", 2, range(4), [{0, 1}, {3}]),
        ("0,2 ; 1", 2, range(4), [{0, 2}, {1}]),
    ],
)
def test_cores_of_each_worker(text, workers, cores, expected, tmp_path):
    assert [set(each) for each in choose(text, workers, list(cores))] == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0;1;2", "lists cores for 3 workers, but this machine has 2"),
        ("0;9", "names core 9, but fleetrun may use only 0, 1"),
        ("left;right", "auto, none, or cores such as 0-3;4-7, not 'left;right'"),
        ("0;1-", "auto, none, or cores such as"),
        ("1-0;1", "a range without cores"),
    ],
)
def test_what_cannot_be_pinned_is_refused(text, sentence):
    with pytest.raises(LaunchError, match=sentence):
        choose(text, 2, [0, 1])


def test_cores_of_one_memory_node_stay_together(tmp_path):
    for node, cores in (("node0", "0,2"), ("node1", "1,3")):
        (tmp_path / node).mkdir()
        (tmp_path / node / "cpulist").write_text(cores + "\n")
    assert by_node([0, 1, 2, 3], tmp_path) == [0, 2, 1, 3]
    assert by_node([0, 1, 2, 3], tmp_path / "unknown") == [0, 1, 2, 3]


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_workers_stay_on_their_cores(fleetrun, script, tmp_path, method):
    script(SCRIPT)
    first, second = sorted(os.sched_getaffinity(0))[:2]
    flags = ("--nproc_per_node=2", f"--start_method={method}")
    run = fleetrun(*flags, "--cpu_affinity", f"{second};{first}", "train.py")
    assert run.end() == 0, run.stderr
    assert json.loads((tmp_path / "cores.0").read_text()) == [second]
    assert json.loads((tmp_path / "cores.1").read_text()) == [first]


def test_a_job_with_servers_refuses_it(fleetrun, script):
    script(SCRIPT)
    run = fleetrun("--server_num=1", "--worker_num=1", "--cpu_affinity=auto", "train.py")
    assert run.end() == 2
    assert "--cpu_affinity auto is for collective training" in run.stderr
