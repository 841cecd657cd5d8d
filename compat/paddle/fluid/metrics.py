"""Measures kept outside of programs."""

from paddle._coverage import missing

__all__ = []

__getattr__ = missing(__name__)
