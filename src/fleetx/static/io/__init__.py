"""Saving and loading: variables, inference models and whole training states in Paddle's formats.

Every load reads and checks all of its files before it changes anything in memory; every save writes
complete files under temporary names first. `save_inference_model` takes a path prefix as Paddle 2.x
does, `save_inference_dir` a folder as 1.x does.
"""

from fleetx.exports import export_imported
from fleetx.static.io.inference import *  # noqa: F403
from fleetx.static.io.inference_dir import load_inference_dir, save_inference_dir
from fleetx.static.io.inference_program import feed_names_of, fetch_names_of
from fleetx.static.io.objects import load_object, save_object
from fleetx.static.io.training_state import (
    load,
    load_program_state,
    program_state_dict,
    save,
    set_program_state,
)
from fleetx.static.io.variables import (
    get_parameter_value,
    get_parameter_value_by_name,
    get_program_parameter,
    get_program_persistable_vars,
    is_belong_to_optimizer,
    is_parameter,
    is_persistable,
    load_params,
    load_persistables,
    load_vars,
    save_params,
    save_persistables,
    save_vars,
)

export_imported(globals())
