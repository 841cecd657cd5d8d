"""Access control of servers: CURVE keys generated per job.

A job has one key pair for its servers, one for its workers and one for readers, who may look up
rows and nothing else. A server accepts only peers with the secret key of workers or readers, and
they connect only to a server with the servers' secret key; all traffic is encrypted. That holds on
loopback too, where other users of the machine could connect; large bodies do not pass the socket
there (`shared_payloads.py`). A server without keys must be requested explicitly (`allow_insecure`).

The launcher imports this module while other machines wait for it, so it does not import torch.
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
_OF_READERS = {"reader_public", "reader_secret"}
_MAY_BE_EMPTY = {"server_secret", *_OF_READERS}


@dataclasses.dataclass(frozen=True)
class JobKeys:
    """The keys of a job; `server_secret` is empty on workers, which do not need it."""

    server_public: str
    server_secret: str
    worker_public: str
    worker_secret: str
    reader_public: str = ""
    reader_secret: str = ""
    """Empty in key files of versions without readers: then there is no read-only access."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if len(value) != 40 and (value or field.name not in _MAY_BE_EMPTY):
                raise ValueError(
                    f"JobKeys.{field.name} has {len(value)} characters; a CURVE key has 40."
                )

    @property
    def own_pair(self) -> tuple[str, str]:
        """The public and the secret key by which a worker connects."""
        return self.worker_public, self.worker_secret

    def __repr__(self) -> str:
        # Keys must not appear in logs and tracebacks.
        return f"JobKeys(server_public={self.server_public!r}, …)"

    def for_workers(self) -> JobKeys:
        """Return the keys without the servers' secret."""
        return dataclasses.replace(self, server_secret="")

    def for_readers(self) -> ReaderKeys:
        """Return the keys of a client that looks up rows and can do nothing else."""
        if not self.reader_secret:
            raise ValueError(
                "these keys of a job have none for readers, as they were made by an older FleetX: "
                "make new ones with `fleetx ps keys`, and start the job with them."
            )
        return ReaderKeys(self.server_public, self.reader_public, self.reader_secret)

    def to_dict(self) -> dict[str, str]:
        """Return the keys as plain text, for the launcher to distribute."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, str]) -> JobKeys:
        """Restore what `to_dict` returned."""
        names = {field.name for field in dataclasses.fields(cls)}
        if not names - _OF_READERS <= set(values) <= names:
            raise ValueError(f"The keys of a job are {sorted(names)}, not {sorted(values)}.")
        return cls(**values)


@dataclasses.dataclass(frozen=True)
class ReaderKeys:
    """The keys of a client that only looks up rows."""

    server_public: str
    reader_public: str
    reader_secret: str

    def __repr__(self) -> str:
        return f"ReaderKeys(server_public={self.server_public!r}, …)"

    @property
    def own_pair(self) -> tuple[str, str]:
        """The public and the secret key by which a reader connects."""
        return self.reader_public, self.reader_secret

    @classmethod
    def from_dict(cls, values: Mapping[str, str]) -> ReaderKeys:
        """Restore what `dataclasses.asdict` returned; keys of a whole job are refused."""
        names = {field.name for field in dataclasses.fields(cls)}
        if set(values) != names or any(len(value) != 40 for value in values.values()):
            raise ValueError(
                f"the keys of a reader are {sorted(names)}, of 40 characters each, not "
                f"{sorted(values)}: make them with `fleetx ps reader_keys`."
            )
        return cls(**values)


def make_keys() -> JobKeys:
    """Generate the keys of a new job."""
    pairs = [zmq.curve_keypair() for _ in range(3)]
    return JobKeys(*(key.decode() for pair in pairs for key in pair))


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
    """The check of a peer's public key, which ZeroMQ calls for every connection."""

    def __init__(self, keys: JobKeys) -> None:
        self._known = {k.encode() for k in (keys.worker_public, keys.reader_public) if k}
        self._refused = 0

    def callback(self, domain: str, key: bytes) -> bool:
        """Return whether the holder of `key` may connect."""
        if key in self._known:
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
    authenticator.configure_curve_callback(credentials_provider=_Members(keys))
    return authenticator


def secure_server(socket: zmq.Socket[bytes], keys: JobKeys) -> None:
    """Make a socket accept only holders of the workers' or readers' key; call before bind."""
    socket.curve_server = True
    socket.curve_secretkey = keys.server_secret.encode()
    socket.curve_publickey = keys.server_public.encode()


def secure_client(socket: zmq.Socket[bytes], keys: JobKeys | ReaderKeys) -> None:
    """Make a socket connect only to a holder of the servers' key; call before connect."""
    socket.curve_serverkey = keys.server_public.encode()
    socket.curve_publickey, socket.curve_secretkey = (key.encode() for key in keys.own_pair)


def is_reader(frame: zmq.Frame, keys: JobKeys | None) -> bool:
    """Return whether a message came from a read-only peer, by its key."""
    if keys is None or not keys.reader_public:
        return False
    return bool(frame.get("User-Id") == keys.reader_public)
