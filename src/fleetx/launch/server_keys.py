"""The keys of a server job's processes: unique per job, unless disabled."""

from __future__ import annotations

from fleetx.launch.launch_errors import LaunchError
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


def new_keys(job: ServerOptions) -> dict[str, str] | None:
    """Generate the keys of a job; None with --server_insecure."""
    from fleetx.ps.wire.security import make_keys

    return None if job.insecure else make_keys().to_dict()
