"""A short training run that checks the installation."""

from __future__ import annotations

import numpy as np

from fleetx.static import unique_name
from fleetx.static.graph.default_programs import program_guard
from fleetx.static.graph.program import Program
from fleetx.static.run.executor import Executor
from fleetx.static.run.place import CPUPlace, CUDAPlace, Place, is_compiled_with_cuda
from fleetx.static.run.scope import Scope, scope_guard


def run_check() -> None:
    """Train a small network for two steps on the CPU, and on CUDA if available."""
    places: list[Place] = [CPUPlace(), CUDAPlace(0)] if is_compiled_with_cuda() else [CPUPlace()]
    for place in places:
        _train(place)
        print(f"FleetX works on {place}.", flush=True)


def _train(place: Place) -> None:
    from fleetx.static import layers
    from fleetx.static.optimizer import SGD

    main, startup = Program(), Program()
    with program_guard(main, startup), unique_name.guard(), scope_guard(Scope()):
        x = layers.data(name="x", shape=[2])
        loss = layers.mean(layers.fc(x, size=3))
        SGD(learning_rate=0.1).minimize(loss)
        executor = Executor(place)
        executor.run(startup)
        feed = {"x": np.ones((4, 2), "float32")}
        first, second = (
            float(executor.run(main, feed=feed, fetch_list=[loss])[0].item()) for _ in range(2)
        )
    if not second < first:
        raise RuntimeError(
            f"The check on {place} failed: the loss did not decrease from {first}, but is {second}."
        )
