"""Compiled programs and their settings."""

from fleetx.static.run.compiled_program import BuildStrategy, CompiledProgram, ExecutionStrategy
from paddle._coverage import missing

__all__ = ["BuildStrategy", "CompiledProgram", "ExecutionStrategy"]

__getattr__ = missing(__name__)
