"""Finding and removing ops, and programs as lines of code."""

from fleetx.static.inspection.program_code import *  # noqa: F403
from fleetx.static.inspection.searching import (
    delete_ops,
    find_op_by_input_arg,
    find_op_by_output_arg,
)
