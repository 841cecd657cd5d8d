"""Saving and loading programs and their values."""

from fleetx.static.io import (
    deserialize_persistables,
    deserialize_program,
    get_program_persistable_vars,
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
    serialize_variables,
    set_program_state,
)
from fleetx.static.io.inference_program import append_fetch_ops, prepend_feed_ops
from fleetx.static.io.scope_values import valid_program
from fleetx.static.protobuf.serialize import program_to_bytes
from paddle._coverage import exported, missing

_get_valid_program = valid_program
_serialize_persistables = serialize_variables
_serialize_program = program_to_bytes

__all__ = exported(globals(), without="program_to_bytes serialize_variables valid_program")
__getattr__ = missing(__name__)
