"""Saving and resuming: models, checkpoints, and checkpoints of another number of workers."""
