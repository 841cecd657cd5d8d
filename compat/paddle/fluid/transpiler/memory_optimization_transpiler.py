"""What Paddle 1.x saved memory with; nothing is left to do."""

from paddle.fluid._memory import memory_optimize, release_memory
