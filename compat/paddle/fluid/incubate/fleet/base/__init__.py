"""The parts that collective training and parameter servers share."""

from paddle.fluid.incubate.fleet.base import fleet_base, mode, role_maker
