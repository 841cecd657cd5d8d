"""Utilities for training scripts: `Downloader` for data sets, `is_first_worker`, a schedule."""

from fleetx.static.layers.learning_rate_scheduler import linear_warmup_decay
from fleetx.utils.downloader import Downloader
from fleetx.utils.machine import is_first_worker

__all__ = ["Downloader", "is_first_worker", "linear_warmup_decay"]
