"""Readers of several workers."""

from paddle.fluid.contrib.reader.distributed_reader import distributed_batch_reader
