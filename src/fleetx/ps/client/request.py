"""A worker's questions to a server, and how they are asked."""

from __future__ import annotations

import dataclasses
from concurrent.futures import Future

import torch

from fleetx.ps.wire import liveness
from fleetx.ps.wire.assembly import Message, Tensors
from fleetx.ps.wire.messages import Header, TensorSpec, lay_out
from fleetx.ps.wire.security import JobKeys
from fleetx.ps.wire.shared_memory import DEFAULT_BYTES


class RefusedError(RuntimeError):
    """A server refused a request; the text says which and why."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """How a worker talks to its servers."""

    keys: JobKeys | None = None
    incarnation: int | None = None
    """Grows with every start of this worker; None takes the time."""
    shared_memory: bool = True
    """Use shared memory with servers on this machine."""
    shared_bytes: int = DEFAULT_BYTES
    resend: float = 1.0
    """A request without an answer is sent again after so many seconds, then less and less often."""
    lease: float = liveness.LEASE
    """A connected server that has been silent for so many seconds counts as stopped."""
    server_wait: float = 120.0
    """A server that cannot be reached has so many seconds to come (back)."""
    drop: float = 0.0
    """For tests: the share of incoming messages that is thrown away …"""
    drop_seed: int = 0
    """… at random, by this seed."""


@dataclasses.dataclass(eq=False)
class Request:
    """One question to one server, until it is answered."""

    header: Header
    tensors: Tensors
    room: int = 0
    """Bytes that the answer will need."""
    out: list[torch.Tensor] | None = None
    """Where to put the tensors of the answer; None makes new ones."""
    held: bool = False
    """The server reads the body in shared memory until the step has been applied."""
    future: Future[Message] = dataclasses.field(default_factory=Future)
    attempt: int = -1
    due: float = 0.0
    specs: list[TensorSpec] = dataclasses.field(init=False)
    """What the body consists of."""
    body: tuple[int, int] | None = None
    """Where the body lies in shared memory: start and size."""
    reply: tuple[int, int] | None = None
    """Where in shared memory the answer will be."""

    def __post_init__(self) -> None:
        self.specs = lay_out(self.tensors)
