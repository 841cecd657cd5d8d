"""Finding and removing ops."""

from fleetx.static.inspection.searching import (
    delete_ops,
    find_op_by_input_arg,
    find_op_by_output_arg,
)
