"""A worker's place in an elastic job, as fleetrun passes it through the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass

from fleetx.runtime.network import join_endpoint, split_endpoint

_ADDRESS = "FLEETX_ELASTIC"
_SECRET = "FLEETX_ELASTIC_SECRET"
_TIMEOUT = "FLEETX_ELASTIC_TIMEOUT"


@dataclass(frozen=True)
class ElasticPlace:
    """Where the coordinator of an elastic job listens, and how workers talk to it."""

    coordinator: tuple[str, int]
    secret: bytes
    timeout: float
    """Seconds of silence after which a worker, or the coordinator, counts as lost."""

    def variables(self) -> dict[str, str]:
        """Return the environment variables from which `find_place` reads this."""
        return {
            _ADDRESS: join_endpoint(*self.coordinator),
            _SECRET: self.secret.hex(),
            _TIMEOUT: f"{self.timeout:g}",
        }


def find_place() -> ElasticPlace | None:
    """Return the place of this process in an elastic job; None in any other job."""
    address = os.environ.get(_ADDRESS, "")
    if not address:
        return None
    secret = bytes.fromhex(os.environ.get(_SECRET, ""))
    return ElasticPlace(split_endpoint(address), secret, float(os.environ.get(_TIMEOUT, "10")))
