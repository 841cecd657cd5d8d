"""Memory optimization of Paddle 1.x; without effect."""

from paddle.fluid._memory import memory_optimize, release_memory
