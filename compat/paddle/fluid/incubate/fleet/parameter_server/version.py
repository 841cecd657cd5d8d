"""What kind of servers this is."""

__all__ = ["is_transpiler"]


def is_transpiler() -> bool:
    """Tell whether programs are divided by a transpiler: always."""
    return True
