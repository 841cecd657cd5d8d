"""Saving, loading, and readers."""

from fleetx.static.io import (
    get_parameter_value,
    get_parameter_value_by_name,
    get_program_parameter,
    get_program_persistable_vars,
    is_belong_to_optimizer,
    is_parameter,
    is_persistable,
    load,
    load_params,
    load_persistables,
    load_program_state,
    load_vars,
    save,
    save_params,
    save_persistables,
    save_vars,
    set_program_state,
)
from fleetx.static.io import load_inference_dir as load_inference_model
from fleetx.static.io import save_inference_dir as save_inference_model
from fleetx.static.io.scope_values import valid_program
from fleetx.static.readers.batch import batch
from fleetx.static.readers.collate import default_collate_fn
from fleetx.static.readers.combined_datasets import Dataset
from fleetx.static.readers.decorator import *  # noqa: F403
from fleetx.static.readers.generator_loader import PyReader
from fleetx.static.readers.loader import DataLoader
from fleetx.static.readers.multiprocess import multiprocess_reader
from fleetx.static.readers.sampler import BatchSampler
from paddle._coverage import exported

_get_valid_program = valid_program

__all__ = exported(globals(), without="valid_program")
