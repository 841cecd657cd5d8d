"""Datasets and samplers that a DataLoader takes."""

from fleetx.static.readers.combined_datasets import Dataset
from fleetx.static.readers.sampler import BatchSampler
from paddle._coverage import missing

__all__ = ["BatchSampler", "Dataset"]

__getattr__ = missing(__name__)
