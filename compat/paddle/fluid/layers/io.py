"""Where data enters a program."""

from fleetx.static.layers import data, load
from fleetx.static.readers.py_reader import (
    create_py_reader_by_data,
    double_buffer,
    py_reader,
    read_file,
)
from paddle._coverage import missing

__all__ = ["create_py_reader_by_data", "data", "double_buffer", "load", "py_reader", "read_file"]

__getattr__ = missing(__name__)
