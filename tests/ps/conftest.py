"""Tests of rows and tables run with the compiled modules, and with their fallbacks in NumPy."""

from compiled_or_not import compiled_modules, implementation  # noqa: F401
