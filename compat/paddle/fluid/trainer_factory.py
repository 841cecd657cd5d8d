"""Handlers that look at values while a dataset is being trained on."""

from fleetx.static.run.fetch_handler import FetchHandler, FetchHandlerMonitor
