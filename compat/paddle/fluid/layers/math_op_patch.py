"""Arithmetic of variables."""


def monkey_patch_variable() -> None:
    """Do nothing: variables have their operators from the start."""
