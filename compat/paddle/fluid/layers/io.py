"""Where data enters a program."""

from fleetx.static.layers import data, load
from fleetx.static.readers.py_reader import *  # noqa: F403
