"""Readers of several workers."""

from fleetx.static.readers.distributed_batches import distributed_batch_reader
