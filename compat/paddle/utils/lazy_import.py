"""Modules that are imported when they are needed."""

import importlib
from types import ModuleType


def try_import(module_name: str, err_msg: str | None = None) -> ModuleType:
    """Import a module; if it is missing, the error tells how to install it."""
    try:
        return importlib.import_module(module_name)
    except ImportError as error:
        message = err_msg or f"The module {module_name!r} is needed: pip install {module_name}."
        raise ImportError(message) from error
