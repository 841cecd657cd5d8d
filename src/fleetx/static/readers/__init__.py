"""Input of programs: reader decorators, feeders, loaders and variable-length tensors.

A reader is a function that returns an iterable of samples (`decorator`, `batch`). A feeder turns
mini-batches into feeds (`data_feeder`). Loaders do both in the background (`generator_loader`,
`loader`), or belong to a program (`py_reader`).
"""

from fleetx.exports import export_imported
from fleetx.static.readers.batch import batch
from fleetx.static.readers.collate import default_collate_fn, default_convert_fn
from fleetx.static.readers.combined_datasets import *  # noqa: F403
from fleetx.static.readers.data_feeder import DataFeeder
from fleetx.static.readers.decorator import *  # noqa: F403
from fleetx.static.readers.generator_loader import GeneratorLoader, PyReader
from fleetx.static.readers.loader import DataLoader
from fleetx.static.readers.lod_tensor import (
    LoDTensor,
    LoDTensorArray,
    create_lod_tensor,
    create_random_int_lodtensor,
)
from fleetx.static.readers.multiprocess import multiprocess_reader
from fleetx.static.readers.py_reader import *  # noqa: F403
from fleetx.static.readers.sampler import (
    BatchSampler,
    DistributedBatchSampler,
    RandomSampler,
    Sampler,
    SequenceSampler,
    WeightedRandomSampler,
)

export_imported(globals())
