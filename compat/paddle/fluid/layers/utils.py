"""Nested structures of values."""

from fleetx.static.layers.structure import (
    assert_same_structure,
    copy_mutable_vars,
    flatten,
    hold_mutable_vars,
    map_structure,
    pack_sequence_as,
)
from fleetx.static.layers.structure import is_nested as is_sequence
from fleetx.static.layers.window_args import convert_to_list
