"""File systems for checkpoints, as Paddle 1.8 names them."""

from fleetx.checkpoint.file_system import FS, LocalFS
from paddle._coverage import missing

__all__ = ["FS", "LocalFS"]

__getattr__ = missing(__name__)
