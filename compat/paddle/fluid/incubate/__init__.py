"""What Paddle 1.x had on trial: writers of data, the Fleet API."""

from paddle._coverage import missing
from paddle.fluid.incubate import data_generator, fleet

__getattr__ = missing(__name__)
