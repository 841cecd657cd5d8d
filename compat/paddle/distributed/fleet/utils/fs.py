"""File systems for checkpoints."""

from fleetx.checkpoint.file_system import FS, FSFileExistsError, FSFileNotExistsError, LocalFS
