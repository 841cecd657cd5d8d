"""What kind of servers this is."""

__all__ = ["is_transpiler"]


def is_transpiler() -> bool:
    """Return whether programs are divided by a transpiler: always."""
    return True
