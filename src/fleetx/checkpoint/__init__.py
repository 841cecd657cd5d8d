"""Files: atomic, checksummed, safe to load; and Paddle's own formats."""

from fleetx.checkpoint.errors import FormatError, MissingFileError

__all__ = ["FormatError", "MissingFileError"]
