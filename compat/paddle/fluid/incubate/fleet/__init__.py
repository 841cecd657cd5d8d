"""The Fleet API of Paddle 1.x."""

from paddle.fluid.incubate.fleet import base, collective, parameter_server
