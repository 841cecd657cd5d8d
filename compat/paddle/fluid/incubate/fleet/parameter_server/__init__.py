"""Training with parameter servers, in the API of Paddle 1.x."""

from paddle._coverage import missing
from paddle.fluid.incubate.fleet.parameter_server import distribute_transpiler

__getattr__ = missing(__name__)
