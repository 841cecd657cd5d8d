"""Which server gets a variable."""

from fleetx.paddle_rules.server_config import HashName, PSDispatcher, RoundRobin
from paddle._coverage import missing

__all__ = ["HashName", "PSDispatcher", "RoundRobin"]

__getattr__ = missing(__name__)
