"""The heartbeat under the name that training loops call it by; see `fleetx.runtime.heartbeat`."""

from fleetx.runtime.heartbeat import beat, collective

__all__ = ["beat", "collective"]
