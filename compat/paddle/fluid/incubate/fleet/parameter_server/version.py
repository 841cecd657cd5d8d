"""What kind of servers this is."""


def is_transpiler() -> bool:
    """Return whether programs are divided by a transpiler: always."""
    return True
