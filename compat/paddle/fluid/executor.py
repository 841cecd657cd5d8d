"""Executor: runs programs; a feed of an unknown name is only a warning."""

from fleetx.static.run.executor import Executor as _Executor
from fleetx.static.run.fetch_handler import FetchHandler, FetchHandlerMonitor
from fleetx.static.run.place import Place
from fleetx.static.run.scope import global_scope, scope_guard, switch_scope
from fleetx.static.shapes.lod_values import as_lod_tensor, as_numpy, fetch_var

__all__ = [
    "Executor",
    "FetchHandler",
    "FetchHandlerMonitor",
    "as_numpy",
    "global_scope",
    "scope_guard",
]

_as_lodtensor = as_lod_tensor
_fetch_var = fetch_var
_switch_scope = switch_scope


class Executor(_Executor):
    """Runs programs on a place; see `fleetx.static.Executor`."""

    def __init__(self, place: Place | None = None) -> None:
        super().__init__(place, unknown_feed="warn")
