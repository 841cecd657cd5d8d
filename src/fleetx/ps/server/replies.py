"""The way back to workers, as the request handler needs it: it has no sockets."""

from __future__ import annotations

import contextlib
from typing import Protocol

from fleetx.ps.wire.assembly import Tensors
from fleetx.ps.wire.messages import Header


class Replies(Protocol):
    """The way back to workers; a `Listener` is one."""

    def send(self, route: bytes, header: Header, tensors: Tensors) -> None:
        """Send a message."""

    def send_frames(self, route: bytes, frames: list[bytes]) -> None:
        """Send a message that is already encoded."""

    def busy(self) -> contextlib.AbstractContextManager[None]:
        """Let heartbeats be sent during work that may take long."""
