"""Utilities for training scripts: `Downloader` for data sets, `is_first_worker`."""

from fleetx.utils.downloader import Downloader
from fleetx.utils.machine import is_first_worker

__all__ = ["Downloader", "is_first_worker"]
