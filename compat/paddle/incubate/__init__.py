"""What Paddle 2.x has on trial."""

from paddle._coverage import missing
from paddle.incubate import optimizer

__getattr__ = missing(__name__)
