"""Executor: runs programs. A feed of a name that the program does not have is a warning here."""

from fleetx.static.executor import Executor as _Executor
from fleetx.static.place import Place
from fleetx.static.scope import global_scope, scope_guard, switch_scope
from paddle._coverage import missing

__all__ = ["Executor", "global_scope", "scope_guard"]

_switch_scope = switch_scope


class Executor(_Executor):
    """Runs programs on a place; see `fleetx.static.Executor`."""

    def __init__(self, place: Place | None = None) -> None:
        super().__init__(place, unknown_feed="warn")


__getattr__ = missing(__name__)
