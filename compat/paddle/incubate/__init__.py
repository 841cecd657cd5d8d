"""What Paddle 2.x has on trial."""

from paddle.incubate import optimizer
