"""Alias of `fleetx.runtime.heartbeat` under the name that training loops use."""

from fleetx.runtime.heartbeat import beat, collective

__all__ = ["beat", "collective"]
