"""Decorators that keep the signature of a function."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any


def wrap_decorator(decorator_func: Callable[..., Any]) -> Callable[..., Any]:
    """Return a decorator like the given one that keeps name and signature of functions."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        return functools.wraps(function)(decorator_func(function))

    return decorate


signature_safe_contextmanager = wrap_decorator(contextlib.contextmanager)
