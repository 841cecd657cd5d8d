"""Further layers."""

from paddle._coverage import missing

__all__ = []

__getattr__ = missing(__name__)
