"""Trains a program cut into two stages, until the worker of the second one is gone."""

import json
import os
import sys
from pathlib import Path

import pipelined_programs as programs

from fleetx import fleet

training = programs.Training(*programs.CASES["sgd, 1F1B"]).train(range(1))
folder = Path(sys.argv[1])
if fleet.worker_index() == 1:
    (folder / "1.json").write_text(json.dumps({}))
    os._exit(0)  # without a word to the other
words = ""
try:
    training.train(range(1, programs.STEPS))
except RuntimeError as error:
    words = str(error)
(folder / "0.json").write_text(json.dumps({"words": words}))
