"""Functions that warn when they are called."""

import functools
import warnings
from collections.abc import Callable
from typing import Any


def deprecated(
    update_to: str = "", since: str = "", reason: str = "", level: int = 0
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Mark a function as deprecated: it warns when it is called (level 2 raises)."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        words = [f"{function.__module__}.{function.__name__} is deprecated"]
        words += [f"since {since}"] if since else []
        words += [f"use {update_to}"] if update_to else []
        words += [reason] if reason else []
        message = ", ".join(words) + "."

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if level == 2:
                raise RuntimeError(message)
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            return function(*args, **kwargs)

        return wrapper

    return decorate
