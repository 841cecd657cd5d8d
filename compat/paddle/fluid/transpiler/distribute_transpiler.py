"""Dividing programs between workers and parameter servers."""

from fleetx.paddle_rules.server_config import (
    DistributedMode,
    DistributeTranspilerConfig,
    ServerRuntimeConfig,
)
from fleetx.paddle_rules.transpiler import DistributeTranspiler
from fleetx.paddle_rules.variable_blocks import VarBlock, log, same_or_split_var, slice_variable
from paddle.fluid.transpiler.ps_dispatcher import HashName, PSDispatcher, RoundRobin
