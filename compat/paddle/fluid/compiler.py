"""Compiled programs and their settings."""

from fleetx.static.run.compiled_program import BuildStrategy, CompiledProgram, ExecutionStrategy
