"""Which of several failures is the cause, if the victims end before it."""

import subprocess
import sys

import pytest
from launching import clean_environment

from waiting import LIMIT

WORKER = """
import os, sys, time
if sys.argv[1] == "0":
    raise VICTIM
while not os.path.exists("go"):
    time.sleep(0.01)
raise KeyError("the cause")
"""
WATCH = """
import os, sys, time
from pathlib import Path
from fleetx.launch import group
from fleetx.launch.processes import become_subreaper

def spec(rank):
    command = [sys.executable, "worker.py", str(rank)]
    files = Path(f"log.{rank}"), Path(f"heartbeat.{rank}")
    return group.ProcessSpec(rank, command, dict(os.environ), *files)

def wait_for(rank):
    while watched.workers[rank].process.returncode is None:
        watched.poll()
        time.sleep(0.01)

become_subreaper()
group._SETTLE = 0.0
watched = group.Group([spec(0), spec(1)], "here")
wait_for(0)
group._SETTLE_ON_CAUSE = 1e6
assert watched.failure() is None  # the cause may still be running
group._SETTLE_ON_CAUSE = 0.0
assert "Rank 0" in watched.failure().sentence
group._SETTLE_ON_CAUSE = 1e6
Path("go").touch()
wait_for(1)
found = watched.failure()
print(found.sentence, found.excerpt.splitlines()[-1])
"""


@pytest.mark.parametrize(
    "victim",
    [
        'ConnectionError("Connection closed by peer")',
        'RuntimeError("barrier of worker 0 cannot be completed: worker 1 has died.")',
    ],
)
def test_the_cause_may_end_after_its_victims(script, tmp_path, victim):
    script(WORKER.replace("VICTIM", victim), "worker.py")
    done = subprocess.run(
        [sys.executable, str(script(WATCH))],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    expected = "Rank 1 on here failed first: it ended with exit code 1. KeyError: 'the cause'\n"
    assert done.stdout == expected, done.stderr
