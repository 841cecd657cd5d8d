"""File systems for checkpoints, as Paddle 1.8 names them."""

from fleetx.checkpoint.file_system import FS, LocalFS
