"""File formats: atomic, checksummed checkpoints that are safe to load, and Paddle's formats."""

from fleetx.checkpoint.file_errors import FormatError, MissingFileError

__all__ = ["FormatError", "MissingFileError"]
