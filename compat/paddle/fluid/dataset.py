"""Datasets of text files."""

from fleetx.static.dataset_feed import (
    DatasetBase,
    DatasetFactory,
    FileInstantDataset,
    InMemoryDataset,
    QueueDataset,
)
from paddle._coverage import missing

__all__ = ["DatasetBase", "DatasetFactory", "FileInstantDataset", "InMemoryDataset", "QueueDataset"]

__getattr__ = missing(__name__)
