"""Training with parameter servers, in the API of Paddle 1.x."""

from paddle.fluid.incubate.fleet.parameter_server import distribute_transpiler
from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import TranspilerOptimizer
