"""Functions that will go."""

import functools
import sys
from collections.abc import Callable
from typing import Any


def deprecated(since: str, instead: str, extra_message: str = "") -> Callable[..., Any]:
    """Mark a function as deprecated: every call prints a warning to stderr."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        said = f"API {function.__name__} is deprecated since {since}. Use {instead} instead."
        message = "\n".join([said, extra_message]) if extra_message else said

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            print(message, file=sys.stderr)
            return function(*args, **kwargs)

        return wrapper

    return decorate
