"""A worker's requests to a server, and their settings."""

from __future__ import annotations

import dataclasses
from concurrent.futures import Future

import torch

from fleetx.ps.wire import liveness
from fleetx.ps.wire.assembly import Message, Tensors
from fleetx.ps.wire.messages import Header, TensorSpec, lay_out
from fleetx.ps.wire.security import JobKeys
from fleetx.ps.wire.shared_payloads import DEFAULT_BYTES
from fleetx.runtime.server_support import DEFAULT_SERVER_WAIT


class RefusedError(RuntimeError):
    """An error for a request that a server rejected; the text gives the request and the reason."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """The settings of a worker's connections to its servers."""

    keys: JobKeys | None = None
    incarnation: int | None = None
    """Increases with every start of this worker; None uses the time."""
    shared_memory: bool = True
    """Use shared memory with servers on this machine."""
    shared_bytes: int = DEFAULT_BYTES
    resend: float = 1.0
    """A request without a reply is resent after this many seconds at the earliest, later if replies
    usually take longer, with increasing intervals."""
    lease: float = liveness.LEASE
    """A connected server that is silent for this many seconds is considered lost."""
    layout: str | None = None
    """The folder with the job's layout (`fleetx.runtime.layout_folder`); None if servers stay."""
    server_wait: float = DEFAULT_SERVER_WAIT
    """A server that is lost or cannot be reached has this many seconds to (re)appear."""
    drop: float = 0.0
    """For tests: the share of incoming messages to drop …"""
    drop_seed: int = 0
    """… at random, with this seed."""


@dataclasses.dataclass(eq=False)
class Request:
    """A request to one server, until its reply arrives."""

    header: Header
    tensors: Tensors
    room: int = 0
    """The size of the reply in bytes."""
    out: list[torch.Tensor] | None = None
    """Where to put the tensors of the reply; None creates new ones."""
    held: bool = False
    """Whether the server reads the body in shared memory until the step has been applied."""
    future: Future[Message] = dataclasses.field(default_factory=Future)
    attempt: int = -1
    sent: float = 0.0
    due: float = 0.0
    specs: list[TensorSpec] = dataclasses.field(init=False)
    """The layout of the body."""
    body: tuple[int, int] | None = None
    """The position of the body in shared memory: start and size."""
    reply: tuple[int, int] | None = None
    """The position of the reply in shared memory."""

    def __post_init__(self) -> None:
        self.specs = lay_out(self.tensors)
