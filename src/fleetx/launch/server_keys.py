"""The keys of a server job's processes: none on the loopback interface, otherwise unique ones."""

from __future__ import annotations

from collections.abc import Iterable

from fleetx.launch.errors import LaunchError
from fleetx.launch.server_arguments import ServerOptions
from fleetx.runtime.server_support import read_keys


def keys_from_file(job: ServerOptions | None) -> dict[str, str] | None:
    """Read and validate the key file given by the flags; return None if there is none."""
    if job is None or job.keys is None:
        return None
    from fleetx.ps.wire.security import JobKeys

    try:
        return JobKeys.from_dict(read_keys(job.keys, "--server_keys")).to_dict()
    except ValueError as error:
        raise LaunchError(str(error)) from error


def new_keys(job: ServerOptions, servers: Iterable[str]) -> dict[str, str] | None:
    """Generate the keys of a job if its servers are reachable from other machines."""
    from fleetx.ps.wire.security import is_loopback, make_keys

    if job.insecure or all(is_loopback(endpoint) for endpoint in servers):
        return None
    return make_keys().to_dict()
