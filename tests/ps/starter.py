"""The process that forks the servers and workers of tests; it has imported what they use.

`multiprocessing` has one such process per process of pytest and one list of modules for it: if
each module of tests set its own, the last would win, and the processes of the others would import
torch's compiler again, several seconds each.
"""

from __future__ import annotations

import multiprocessing
import os
import sys

starter = multiprocessing.get_context("forkserver")
# Before Python 3.13 the process that imports them knows only this variable, not the parent's path.
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
starter.set_forkserver_preload(
    [
        "pytest",  # what these processes are started from
        "torch._dynamo",  # imported by torch's optimizers when the first one is made
        "fleetx.fleet",
        "fleetx.static",
        "fleetx.ps.server.server",
        "training",
    ]
)
