"""Rewriting programs: for server jobs, and the no-ops for memory optimization."""

from paddle.fluid._memory import memory_optimize, release_memory
from paddle.fluid.transpiler import distribute_transpiler, ps_dispatcher
from paddle.fluid.transpiler.distribute_transpiler import (
    DistributeTranspiler,
    DistributeTranspilerConfig,
)
from paddle.fluid.transpiler.ps_dispatcher import HashName, RoundRobin
