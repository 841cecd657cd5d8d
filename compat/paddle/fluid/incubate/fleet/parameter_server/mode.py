"""How workers and parameter servers take turns, and which servers there are."""

from paddle.fluid.transpiler.distribute_transpiler import DistributedMode


class PSMode:
    """Which servers a job has; those of pslib are a closed binary."""

    TRANSPILER = 1
    PSLIB = 2
