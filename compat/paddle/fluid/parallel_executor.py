"""ParallelExecutor."""

from fleetx.static.run.compiled_program import BuildStrategy, ExecutionStrategy, ParallelExecutor
from paddle._coverage import missing

__all__ = ["BuildStrategy", "ExecutionStrategy", "ParallelExecutor"]

__getattr__ = missing(__name__)
