"""Datasets and samplers that a DataLoader takes."""

from fleetx.static.readers.combined_datasets import Dataset
from fleetx.static.readers.sampler import BatchSampler
