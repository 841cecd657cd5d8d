"""Build the models, save each for inference, and write its outputs: save_models.py API FOLDER."""

import os
import sys

import numpy as np
from inputs import inputs
from models import MODELS, api, fill

layers = api(sys.argv[1])
for name, build in MODELS.items():
    folder = os.path.join(sys.argv[2], name)
    os.makedirs(folder)
    main, startup = layers.module.Program(), layers.module.Program()
    with layers.module.program_guard(main, startup):
        feeds, targets = build(layers)
    main = main.clone(for_test=True)
    executor = layers.executor()
    executor.run(startup)
    fill(layers, main, executor.place)
    outputs = executor.run(main, feed=inputs(name), fetch_list=targets)
    np.savez(os.path.join(folder, "outputs.npz"), *outputs)
    targets = [main.global_block().var(v.name) for v in targets]
    feeds = [main.global_block().var(v.name) for v in feeds]
    layers.save(folder, feeds, targets, executor, main)
