"""Input of programs: reader decorators, feeders, loaders and variable-length tensors.

A reader is a function that returns an iterable of samples (`decorator`, `batch`). A feeder turns
mini-batches into feeds (`data_feeder`). Loaders do both in the background (`generator_loader`,
`loader`), or belong to a program (`py_reader`).
"""

from fleetx.static.readers.batch import batch
from fleetx.static.readers.collate import default_collate_fn, default_convert_fn
from fleetx.static.readers.data_feeder import DataFeeder
from fleetx.static.readers.dataset import (
    ChainDataset,
    ComposeDataset,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    get_worker_info,
    random_split,
)
from fleetx.static.readers.decorator import (
    ComposeNotAligned,
    buffered,
    cache,
    chain,
    compose,
    firstn,
    map_readers,
    shuffle,
    xmap_readers,
)
from fleetx.static.readers.generator_loader import GeneratorLoader, PyReader
from fleetx.static.readers.loader import DataLoader
from fleetx.static.readers.lod_tensor import (
    LoDTensor,
    LoDTensorArray,
    create_lod_tensor,
    create_random_int_lodtensor,
)
from fleetx.static.readers.multiprocess import multiprocess_reader
from fleetx.static.readers.py_reader import (
    create_py_reader_by_data,
    double_buffer,
    py_reader,
    read_file,
)
from fleetx.static.readers.sampler import (
    BatchSampler,
    DistributedBatchSampler,
    RandomSampler,
    Sampler,
    SequenceSampler,
    WeightedRandomSampler,
)

__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ComposeDataset",
    "ComposeNotAligned",
    "DataFeeder",
    "DataLoader",
    "Dataset",
    "DistributedBatchSampler",
    "GeneratorLoader",
    "IterableDataset",
    "LoDTensor",
    "LoDTensorArray",
    "PyReader",
    "RandomSampler",
    "Sampler",
    "SequenceSampler",
    "Subset",
    "TensorDataset",
    "WeightedRandomSampler",
    "batch",
    "buffered",
    "cache",
    "chain",
    "compose",
    "create_lod_tensor",
    "create_py_reader_by_data",
    "create_random_int_lodtensor",
    "default_collate_fn",
    "default_convert_fn",
    "double_buffer",
    "firstn",
    "get_worker_info",
    "map_readers",
    "multiprocess_reader",
    "py_reader",
    "random_split",
    "read_file",
    "shuffle",
    "xmap_readers",
]
