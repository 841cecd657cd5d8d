"""The kind of servers."""


def is_transpiler() -> bool:
    """Return True: programs are divided by a transpiler."""
    return True
