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
