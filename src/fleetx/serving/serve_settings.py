"""The settings of a server."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from pathlib import Path

from fleetx.checkpoint.file_errors import FormatError


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """Limits and keys of a server."""

    max_batch: int = 32
    """The maximum number of rows in a batch, and in one request."""

    max_delay: float = 0.002
    """The maximum number of seconds that a request waits for others."""

    max_body: int = 64 << 20
    """The maximum size of a request's body in bytes."""

    max_queue: int = 256
    """The maximum number of requests being read, waiting or computed; further ones get a 503."""

    max_bodies: int = 256 << 20
    """The maximum sum of the bodies of all requests in progress; further ones get a 503."""

    max_header: int = 64 << 10
    """The maximum size of a request's line and headers in bytes."""

    max_connections: int = 1024
    """The maximum number of open connections; further ones get a 503."""

    header_seconds: float = 10.0
    """The time limit for receiving a request's line and headers, in seconds."""

    body_seconds: float = 30.0
    """The time limit for receiving a request's body, in seconds."""

    run_seconds: float = 60.0
    """The time limit for computing a batch, in seconds; its requests then get a 504."""

    api_keys: tuple[str, ...] = ()
    """Accepted keys; if empty, all requests are served."""

    def __post_init__(self) -> None:
        for name in ("max_batch", "max_body", "max_queue", "max_bodies", "max_header"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, but must be at least 1.")
        for name in ("header_seconds", "body_seconds", "run_seconds"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}, but must be more than 0.")
        if self.max_bodies < self.max_body:
            raise ValueError(
                f"max_bodies is {self.max_bodies}, but one body may have {self.max_body} bytes."
            )
        if self.max_delay < 0:
            raise ValueError(f"max_delay is {self.max_delay}, but must not be negative.")

    def allows(self, key: str | None) -> bool:
        """Return whether a request with this key is served, in constant time for wrong keys."""
        if not self.api_keys:
            return True
        given = (key or "").encode()
        found = [hmac.compare_digest(given, each.encode()) for each in self.api_keys]
        return any(found)


def read_keys(path: Path) -> tuple[str, ...]:
    """Return the keys in a file, one per line; a new key can be valid along with the old."""
    lines = [line.strip() for line in path.read_text().splitlines()]
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise FormatError(str(path), "holds no API key; write one per line.")
    for key in keys:
        if not key.isascii() or any(c.isspace() for c in key):
            raise FormatError(str(path), "holds a key with blanks or other than ASCII characters.")
    return keys
