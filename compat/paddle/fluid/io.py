"""Saving, loading, and readers."""

from fleetx.static.io import *  # noqa: F403
from fleetx.static.io import load_inference_dir as load_inference_model
from fleetx.static.io import save_inference_dir as save_inference_model
from fleetx.static.io.scope_values import valid_program as _get_valid_program
from fleetx.static.readers.batch import batch
from fleetx.static.readers.collate import default_collate_fn
from fleetx.static.readers.combined_datasets import Dataset
from fleetx.static.readers.decorator import *  # noqa: F403
from fleetx.static.readers.generator_loader import PyReader
from fleetx.static.readers.loader import DataLoader
from fleetx.static.readers.multiprocess import multiprocess_reader
from fleetx.static.readers.sampler import BatchSampler
from paddle._coverage import only

__all__ = only(
    globals(),
    """
    BatchSampler ComposeNotAligned DataLoader Dataset PyReader batch buffered cache chain
    compose default_collate_fn firstn get_parameter_value get_parameter_value_by_name
    get_program_parameter get_program_persistable_vars is_belong_to_optimizer is_parameter
    is_persistable load load_inference_model load_params load_persistables load_program_state
    load_vars map_readers multiprocess_reader save save_inference_model save_params
    save_persistables save_vars set_program_state shuffle xmap_readers
    """,
)
