"""Run a program of the documents: run_document.py API PLACE PROGRAM RECORD [ARGUMENTS of it].

PLACE "cpu" takes every CUDAPlace for a CPUPlace: a real Paddle without CUDA ends the process there.
The random numbers of NumPy are the same in every run. RECORD gets all that was fetched.
"""

import os
import runpy
import sys

import numpy as np

import paddle

names, place, program, record = sys.argv[1:5]
sys.argv = [program, *sys.argv[5:]]
sys.path[0] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "document_parts")
if names == "fluid":
    import paddle.fluid as module
else:
    import paddle.static as module
if place == "cpu":
    owner = module if names == "fluid" else paddle
    owner.CUDAPlace = lambda number: owner.CPUPlace()

fetched = []
plain_run = module.Executor.run


def recording_run(self, *args, **kwargs):
    """Run as always, and keep a copy of the results."""
    values = plain_run(self, *args, **kwargs)
    fetched.extend(np.array(value) for value in values or [])
    return values


module.Executor.run = recording_run
np.random.seed(8)
runpy.run_path(program, run_name="__main__")
np.savez(record, **{"%06d" % i: value for i, value in enumerate(fetched)})
