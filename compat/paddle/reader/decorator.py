"""Functions from readers to readers."""

from fleetx.static.readers.decorator import *  # noqa: F403
from fleetx.static.readers.multiprocess import multiprocess_reader
