"""The look-ups of a program in a distributed table."""

from fleetx.static.inspection.searching import (
    find_distributed_lookup_table,
    find_distributed_lookup_table_inputs,
    find_distributed_lookup_table_outputs,
)
