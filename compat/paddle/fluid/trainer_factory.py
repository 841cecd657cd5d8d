"""Handlers that look at values while a dataset is being trained on."""

from fleetx.static.run.fetch_handler import FetchHandler, FetchHandlerMonitor
from paddle._coverage import missing

__all__ = ["FetchHandler", "FetchHandlerMonitor"]

__getattr__ = missing(__name__)
