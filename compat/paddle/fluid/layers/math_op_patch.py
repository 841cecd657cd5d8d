"""Arithmetic of variables."""

__all__ = ["monkey_patch_variable"]


def monkey_patch_variable() -> None:
    """Do nothing: variables have their operators from the start."""
