"""Local scopes: seen inside, gone outside."""

from __future__ import annotations

import threading

import pytest

from fleetx.static.run import scope_stack


def test_names_of_a_local_scope_are_gone_when_it_is_left() -> None:
    scope_stack.var("outer").set_int(1)
    scope_stack.enter_local_scope()
    scope_stack.var("inner").set_int(2)
    outer, inner = scope_stack.find_var("outer"), scope_stack.find_var("inner")
    assert outer is not None
    assert inner is not None
    assert (outer.get_int(), inner.get_int()) == (1, 2)
    scope_stack.leave_local_scope()
    assert scope_stack.find_var("inner") is None
    with pytest.raises(RuntimeError, match="without an enter_local_scope"):
        scope_stack.leave_local_scope()


def test_a_scoped_function_cleans_up_after_an_error() -> None:
    def fail() -> None:
        scope_stack.var("lost").set_int(3)
        raise KeyError("lost")

    before = scope_stack.get_cur_scope()
    with pytest.raises(KeyError):
        scope_stack.scoped_function(fail)
    assert scope_stack.get_cur_scope() is before
    assert scope_stack.find_var("lost") is None


def test_each_thread_has_its_own_scopes() -> None:
    scope_stack.var("mine").set_int(4)
    seen: list[object] = []
    thread = threading.Thread(target=lambda: seen.append(scope_stack.find_var("mine")))
    thread.start()
    thread.join()
    assert seen == [None]
