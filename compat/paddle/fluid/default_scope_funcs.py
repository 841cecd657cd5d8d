"""The names of fluid's stack of local scopes."""

from fleetx.static.scope_stack import (
    enter_local_scope,
    find_var,
    get_cur_scope,
    leave_local_scope,
    scoped_function,
    var,
)

__all__ = [
    "enter_local_scope",
    "find_var",
    "get_cur_scope",
    "leave_local_scope",
    "scoped_function",
    "var",
]
