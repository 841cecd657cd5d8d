"""Assignment of variables to servers."""

from fleetx.paddle_rules.server_config import HashName, PSDispatcher, RoundRobin
