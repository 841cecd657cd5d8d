"""A stack of local scopes per thread: variables of a local scope are dropped when it is left.

Lookups go from the innermost scope outwards. The stack is independent of the global scope.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from fleetx.exports import export_defined
from fleetx.static.run.scope import Scope, ScopeVariable


class _Stack(threading.local):
    """The scopes of one thread, the innermost last."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = [Scope()]


_stack = _Stack()


def get_cur_scope() -> Scope:
    """Return the innermost scope of this thread."""
    return _stack.scopes[-1]


def enter_local_scope() -> None:
    """Open a scope inside the current one."""
    _stack.scopes.append(get_cur_scope().new_scope())


def leave_local_scope() -> None:
    """Close the innermost scope and drop its variables."""
    if len(_stack.scopes) == 1:
        raise RuntimeError("leave_local_scope was called without an enter_local_scope before it.")
    _stack.scopes.pop()
    get_cur_scope().drop_kids()


def var(name: str) -> ScopeVariable:
    """Return the variable of this name; create it in the innermost scope if needed."""
    return get_cur_scope().var(name)


def find_var(name: str) -> ScopeVariable | None:
    """Return the variable of this name from the innermost scope outwards, or None."""
    return get_cur_scope().find_var(name)


def scoped_function(func: Callable[[], object]) -> None:
    """Call a function inside a local scope."""
    enter_local_scope()
    try:
        func()
    finally:
        leave_local_scope()


export_defined(globals())
