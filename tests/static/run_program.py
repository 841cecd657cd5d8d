"""Build a function of Variables into a fresh program, run it, and return its results."""

from __future__ import annotations

from typing import Any

import numpy as np

from fleetx import static


class Built:
    """A program made by calling `build` with Variables named after the feeds."""

    def __init__(self, build: Any, feeds: dict[str, np.ndarray]) -> None:
        self.main, self.startup, self.scope = static.Program(), static.Program(), static.Scope()
        self.feeds = feeds
        with static.program_guard(self.main, self.startup), static.unique_name.guard():
            block = self.main.global_block()
            self.inputs = {}
            for name, array in feeds.items():
                var = block.create_var(
                    name=name, shape=array.shape, dtype=str(array.dtype), is_data=True
                )
                var.stop_gradient = array.dtype.kind != "f"
                self.inputs[name] = var
            self.result = build(**self.inputs)
            found = self.result if isinstance(self.result, list | tuple) else [self.result]
            self.outputs = list(found)
        self.executor = static.Executor(static.CPUPlace())
        self.executor.run(self.startup, scope=self.scope)

    def set(self, name: str, value: np.ndarray) -> None:
        """Set a parameter by its name."""
        self.scope.var(name).get_tensor().set(value)

    def get(self, name: str) -> np.ndarray:
        """Return a parameter's value."""
        return np.array(self.scope.find_var(name).get_tensor())

    def run(self, fetch: Any = None, program: Any = None) -> list[np.ndarray]:
        """Return the values of the outputs (or of `fetch`)."""
        fetch = self.outputs if fetch is None else fetch
        return self.executor.run(
            program or self.main, feed=self.feeds, fetch_list=list(fetch), scope=self.scope
        )


def compute(build: Any, **feeds: np.ndarray) -> Any:
    """Return what a function of Variables computes for these arrays."""
    built = Built(build, feeds)
    values = built.run()
    return values if isinstance(built.result, list | tuple) else values[0]
