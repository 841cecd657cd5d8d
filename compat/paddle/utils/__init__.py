"""Helpers: unique names, a check of the installation, optional imports."""

import functools
import importlib
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

from fleetx.static.run.self_check import run_check
from paddle._version_check import require_version
from paddle.utils import unique_name

__all__ = ["deprecated", "require_version", "run_check", "try_import", "unique_name"]


def try_import(module_name: str, err_msg: str | None = None) -> ModuleType:
    """Import a module, or say how to install it."""
    try:
        return importlib.import_module(module_name)
    except ImportError as error:
        message = err_msg or f"The module {module_name!r} is needed: pip install {module_name}."
        raise ImportError(message) from error


def deprecated(
    update_to: str = "", since: str = "", reason: str = "", level: int = 0
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Mark a function as deprecated: it warns when it is called (level 2 refuses)."""

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
