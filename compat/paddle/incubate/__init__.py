"""The experimental part of Paddle 2.x."""

from paddle.incubate import optimizer
