"""ParallelExecutor."""

from fleetx.static.run.compiled_program import BuildStrategy, ExecutionStrategy, ParallelExecutor
