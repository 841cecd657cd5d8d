"""Automatic checkpoints."""

from paddle.fluid.incubate.checkpoint import auto_checkpoint
