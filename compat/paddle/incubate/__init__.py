"""What Paddle 2.x has on trial."""

from paddle._coverage import missing

__getattr__ = missing(__name__)
