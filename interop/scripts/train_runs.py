"""Train one network in every way of the proof: train_runs.py API NETWORK PARAMETERS RESULT.

The engine that finds no folder PARAMETERS starts all its runs from the values that its own start-up
program made and writes them there; the other engine reads them. RESULT gets the losses, the
learning rates and the parameters after the last step of every case, or the words of its error.
"""

import importlib
import os
import sys
import traceback

import numpy as np
from run_cases import batches, cases, rate_scale

names, network, folder = sys.argv[1], sys.argv[2], sys.argv[3]
api = importlib.import_module("run_" + names)
build = getattr(api, network.replace(" ", "_"))
executor = api.executor()


def run(case):
    """Train in one way; return the figures."""
    main, startup = api.Program(), api.Program()
    startup.random_seed = main.random_seed = 5
    with api.fresh_names(), api.program_guard(main, startup):
        loss = build()
        optimizer, after_step = api.training(*case, rate_scale(network))
        optimizer.minimize(loss)
        rate = optimizer._global_learning_rate()
    with api.scope_guard(api.new_scope()):
        executor.run(startup)
        if not os.path.exists(folder):
            api.save_parameters(executor, folder, main)
        api.load_parameters(executor, folder, main)
        losses, rates = [], []
        for batch in batches(network):
            feed = {k: api.sequences(*v) if type(v) is tuple else v for k, v in batch.items()}
            values = executor.run(main, feed=feed, fetch_list=[loss, rate])
            losses.append(np.array(values[0]).reshape(()))
            rates.append(np.array(values[1]).reshape(()))
            after_step()
        scope = api.global_scope()
        found = {
            "parameter " + p.name: np.array(scope.find_var(p.name).get_tensor())
            for p in main.all_parameters()
        }
    found.update(losses=np.array(losses), rates=np.array(rates))
    return found


results = {}
for case in cases(names, network):
    try:
        found = run(case)
    except Exception:  # one case must not hide the others; its test shows the words
        found = {"error": np.array(traceback.format_exc())}
    results.update({"|".join(case) + "|" + key: value for key, value in found.items()})
np.savez(sys.argv[4], **results)
