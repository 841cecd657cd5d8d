"""Loaders of data."""

from fleetx.static.readers.collate import default_collate_fn
from fleetx.static.readers.combined_datasets import Dataset
from fleetx.static.readers.generator_loader import DataLoaderBase, GeneratorLoader, PyReader
from fleetx.static.readers.loader import DataLoader
from fleetx.static.readers.sampler import BatchSampler


def keep_data_loader_order(*args: bool) -> bool | None:
    """Set or return whether loaders keep the order of batches; they always do."""
    return None if args else True
