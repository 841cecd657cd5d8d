"""Which server gets a variable."""

from fleetx.paddle_rules.server_config import HashName, PSDispatcher, RoundRobin
