"""Saving and loading programs and their values."""

from fleetx.static.io import *  # noqa: F403
from fleetx.static.io import serialize_variables as _serialize_persistables
from fleetx.static.io.inference_program import append_fetch_ops, prepend_feed_ops
from fleetx.static.io.scope_values import valid_program as _get_valid_program
from fleetx.static.protobuf.serialize import program_to_bytes as _serialize_program
from paddle._coverage import only

__all__ = only(
    globals(),
    """
    append_fetch_ops deserialize_persistables deserialize_program get_program_persistable_vars
    is_parameter is_persistable load load_from_file load_inference_model load_program_state
    load_vars normalize_program prepend_feed_ops save save_inference_model save_to_file
    save_vars serialize_persistables serialize_program set_program_state
    """,
)
