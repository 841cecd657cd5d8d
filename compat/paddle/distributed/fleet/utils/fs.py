"""File systems for checkpoints."""

from fleetx.checkpoint.file_system import FS, FSFileExistsError, FSFileNotExistsError, LocalFS
from paddle._coverage import missing

__all__ = ["FS", "FSFileExistsError", "FSFileNotExistsError", "LocalFS"]

__getattr__ = missing(__name__)
