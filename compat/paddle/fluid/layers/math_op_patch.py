"""Arithmetic of variables."""


def monkey_patch_variable() -> None:
    """Do nothing: variables always have their operators."""
