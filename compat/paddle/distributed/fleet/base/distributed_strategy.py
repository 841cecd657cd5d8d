"""DistributedStrategy as Paddle 2.x takes arguments: a value of a wrong type is a printed warning,
and the old value stays."""

from fleetx.paddle_rules.strategy import DistributedStrategy
