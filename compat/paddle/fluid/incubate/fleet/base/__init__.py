"""The parts that collective training and parameter servers share."""

from paddle._coverage import missing
from paddle.fluid.incubate.fleet.base import fleet_base, mode, role_maker

__getattr__ = missing(__name__)
