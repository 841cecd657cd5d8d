"""Feeding lists of samples, and checks of arguments."""

from fleetx.static.building.argument_checks import (
    check_dtype,
    check_type,
    check_variable_and_dtype,
    convert_dtype,
)
from fleetx.static.readers.data_feeder import DataFeeder
