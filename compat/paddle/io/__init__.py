"""Datasets, samplers and loaders."""

from fleetx.static.readers.collate import default_collate_fn
from fleetx.static.readers.combined_datasets import *  # noqa: F403
from fleetx.static.readers.loader import DataLoader
from fleetx.static.readers.sampler import (
    BatchSampler,
    DistributedBatchSampler,
    RandomSampler,
    Sampler,
    SequenceSampler,
    WeightedRandomSampler,
)
from paddle._coverage import exported, missing

__all__ = exported(globals())
__getattr__ = missing(__name__)
