"""The Fleet API of Paddle 1.x."""

from paddle._coverage import missing
from paddle.fluid.incubate.fleet import base, collective, parameter_server

__getattr__ = missing(__name__)
