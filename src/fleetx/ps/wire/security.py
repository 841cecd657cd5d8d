"""Access control of servers: CURVE keys generated per job.

A job has one key pair for its servers and one for its workers. A server accepts only peers with the
workers' secret key, and a worker connects only to a server with the servers' secret key; all
traffic between them is encrypted. That holds on loopback too, where other users of the machine
could connect; large bodies do not pass the socket there (`shared_payloads.py`). A server
without keys must be requested explicitly (`allow_insecure`).
"""

from __future__ import annotations

import dataclasses
import ipaddress
import logging
from collections.abc import Mapping
from urllib.parse import urlsplit

import zmq
import zmq.auth.thread

_log = logging.getLogger("fleetx.ps")


@dataclasses.dataclass(frozen=True)
class JobKeys:
    """The keys of a job; `server_secret` is empty on workers, which do not need it."""

    server_public: str
    server_secret: str
    worker_public: str
    worker_secret: str

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if len(value) != 40 and (value or field.name != "server_secret"):
                raise ValueError(
                    f"JobKeys.{field.name} has {len(value)} characters; a CURVE key has 40."
                )

    def __repr__(self) -> str:
        # Keys must not appear in logs and tracebacks.
        return f"JobKeys(server_public={self.server_public!r}, …)"

    def for_workers(self) -> JobKeys:
        """Return the keys without the servers' secret."""
        return dataclasses.replace(self, server_secret="")

    def to_dict(self) -> dict[str, str]:
        """Return the keys as plain text, for the launcher to distribute."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, str]) -> JobKeys:
        """Restore what `to_dict` returned."""
        names = {field.name for field in dataclasses.fields(cls)}
        if set(values) != names:
            raise ValueError(f"The keys of a job are {sorted(names)}, not {sorted(values)}.")
        return cls(**values)


def make_keys() -> JobKeys:
    """Generate the keys of a new job."""
    server_public, server_secret = zmq.curve_keypair()
    worker_public, worker_secret = zmq.curve_keypair()
    return JobKeys(
        *(k.decode() for k in (server_public, server_secret, worker_public, worker_secret))
    )


def is_loopback(endpoint: str) -> bool:
    """Return whether an endpoint (`host:port`) is reachable from this machine only."""
    host = urlsplit(f"//{endpoint}").hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_server_keys(endpoint: str, keys: JobKeys | None, allow_insecure: bool) -> None:
    """Reject a server without keys, which everyone who reaches its address could control."""
    if keys is None and not allow_insecure:
        raise ValueError(
            f"A parameter server at {endpoint} needs keys, since whoever reaches it could read and "
            "change the parameters and make it write files: start it with fleetrun, name a file "
            "made by `fleetx ps keys` in FLEETX_SERVER_KEYS, pass keys=make_keys(), or accept "
            "everyone with FLEETX_SERVER_INSECURE=1 or allow_insecure=True."
        )
    if keys is not None and not keys.server_secret:
        raise ValueError("These keys are a worker's: a server needs the secret key of the servers.")


class _Members:
    """The check of the workers' public key, which ZeroMQ calls for every connection."""

    def __init__(self, public: str) -> None:
        self._public = public.encode()
        self._refused = 0

    def callback(self, domain: str, key: bytes) -> bool:
        """Return whether the holder of `key` may connect."""
        if key == self._public:
            return True
        self._refused += 1
        if self._refused == 1:
            _log.warning("A peer without the job's key was rejected; further ones are not logged.")
        return False


def guard(
    context: zmq.Context[zmq.Socket[bytes]], keys: JobKeys
) -> zmq.auth.thread.ThreadAuthenticator:
    """Start the key check for all CURVE servers of a context; stop it with `.stop()`."""
    authenticator = zmq.auth.thread.ThreadAuthenticator(
        context, log=logging.getLogger("fleetx.ps.keys")
    )
    authenticator.start()
    authenticator.configure_curve_callback(credentials_provider=_Members(keys.worker_public))
    return authenticator


def secure_server(socket: zmq.Socket[bytes], keys: JobKeys) -> None:
    """Make a socket accept only holders of the workers' key; call before bind."""
    socket.curve_server = True
    socket.curve_secretkey = keys.server_secret.encode()
    socket.curve_publickey = keys.server_public.encode()


def secure_client(socket: zmq.Socket[bytes], keys: JobKeys) -> None:
    """Make a socket connect only to a holder of the servers' key; call before connect."""
    socket.curve_serverkey = keys.server_public.encode()
    socket.curve_publickey = keys.worker_public.encode()
    socket.curve_secretkey = keys.worker_secret.encode()
