"""FetchHandler: a callback that receives values periodically while training on a dataset.

Subclasses override `handler`; a `FetchHandlerMonitor` calls it in a thread every `period_secs`
seconds, with the current values of a scope.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fleetx.static.errors import ArgumentError
from fleetx.static.graph.variable import Variable
from fleetx.static.run.scope import Scope
from fleetx.static.run.scope_tensor import ScopeTensor
from fleetx.static.shapes.lod_values import as_numpy

_logger = logging.getLogger(__name__)

_EXAMPLE = """\
class PrintAuc(FetchHandler):
    def handler(self, res_dict):
        print("auc is", res_dict["auc"])

exe.train_from_dataset(program, dataset, fetch_handler=PrintAuc({"auc": auc}, period_secs=10))
"""


class FetchHandler:
    """Prints the first row of its variables; override `handler` to do something else.

    Args:
        var_dict: Variables by the names under which `handler` gets their values.
        period_secs: the seconds between two calls.
    """

    def __init__(self, var_dict: Mapping[str, Any] | None = None, period_secs: float = 60) -> None:
        if var_dict is None:
            raise ArgumentError("FetchHandler needs var_dict: Variables by name.")
        self.var_dict = var_dict
        self.period_secs = period_secs

    def handler(self, res_dict: dict[str, Any]) -> None:
        """Handle the values: arrays by name, None if a variable has no value yet."""
        shown = [f"{k}[0]: {v[0]}" for k, v in res_dict.items() if isinstance(v, np.ndarray)]
        print(" ".join(shown), flush=True)

    @staticmethod
    def help() -> None:
        """Print an example."""
        print(_EXAMPLE)


class FetchHandlerMonitor:
    """Calls a handler with values of a scope between `start()` and `stop()`."""

    def __init__(self, scope: Scope, handler: FetchHandler) -> None:
        self._scope = scope
        self._handler = handler
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="fleetx-fetch", daemon=True)

    def start(self) -> None:
        """Start calling the handler."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, after the current call."""
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        for key, variable in self._handler.var_dict.items():
            if not isinstance(variable, Variable):
                _logger.warning("%s of var_dict is not a Variable.", key)
        while not self._stopped.wait(self._handler.period_secs):
            self._handler.handler(
                {key: self._value(key, v) for key, v in self._handler.var_dict.items()}
            )

    def _value(self, key: str, variable: Any) -> Any:
        found = self._scope.find_var(variable.name) if isinstance(variable, Variable) else None
        if found is None:
            _logger.warning("variable %s has no value yet.", key)
            return None
        return as_numpy(found.get_tensor())


@contextlib.contextmanager
def watched(handler: Any, scope: Scope) -> Iterator[dict[str, ScopeTensor]]:
    """Start a FetchHandler's monitor; yield the tensors by name that it reads."""
    if handler is None:
        yield {}
        return
    own = Scope(scope)
    variables = [v for v in handler.var_dict.values() if isinstance(v, Variable)]
    monitor = FetchHandlerMonitor(own, handler)
    monitor.start()
    try:
        yield {v.name: own.var(v.name).get_tensor() for v in variables if not v.persistable}
    finally:
        monitor.stop()
