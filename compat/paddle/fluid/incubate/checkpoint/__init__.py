"""Checkpoints that a job keeps by itself."""

from paddle.fluid.incubate.checkpoint import auto_checkpoint
