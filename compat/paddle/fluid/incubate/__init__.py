"""What Paddle 1.x had on trial: writers of data, the Fleet API."""

from paddle.fluid.incubate import data_generator, fleet
