"""Saving and loading programs and their values."""

from fleetx.static.io import (
    deserialize_persistables,
    deserialize_program,
    is_parameter,
    is_persistable,
    load,
    load_from_file,
    load_inference_model,
    load_program_state,
    load_vars,
    normalize_program,
    save,
    save_inference_model,
    save_to_file,
    save_vars,
    serialize_persistables,
    serialize_program,
    set_program_state,
)
from fleetx.static.io.scope_values import valid_program
from paddle._coverage import exported, missing

_get_valid_program = valid_program

__all__ = exported(globals(), without="valid_program")
__getattr__ = missing(__name__)
