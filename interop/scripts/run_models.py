"""Load saved models and write their outputs: run_models.py API FOLDER OUTPUT."""

import os
import sys

import numpy as np
from inputs import inputs
from models import MODELS, api

layers = api(sys.argv[1])
for name in MODELS:
    executor = layers.executor()
    program, feeds, targets = layers.load(os.path.join(sys.argv[2], name), executor)
    assert sorted(feeds) == sorted(inputs(name)), feeds
    outputs = executor.run(program, feed=inputs(name), fetch_list=targets)
    np.savez(os.path.join(sys.argv[3], name + ".npz"), *outputs)
