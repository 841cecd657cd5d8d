"""The modes of training with parameter servers, and the kinds of servers."""

from paddle.fluid.transpiler.distribute_transpiler import DistributedMode


class PSMode:
    """The kinds of servers; those of pslib are a closed binary."""

    TRANSPILER = 1
    PSLIB = 2
