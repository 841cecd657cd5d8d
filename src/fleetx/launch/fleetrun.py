"""The command `fleetrun`: validate everything, then start, monitor and stop the workers.

Errors in the command are reported in one sentence before anything starts. PyTorch is not imported
here: the workers import it, and the launcher must not delay them.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path

from fleetx.launch import console, cpu_affinity, run_script
from fleetx.launch.arguments import Options, parse
from fleetx.launch.banner import configuration
from fleetx.launch.devices import Devices, choose
from fleetx.launch.elastic_arguments import refuse_elastic
from fleetx.launch.guard import run_guarded
from fleetx.launch.job_layout import Site, find_site
from fleetx.launch.job_plan import JobPlan
from fleetx.launch.launch_errors import LaunchError
from fleetx.launch.link import Link, Rules
from fleetx.launch.server_arguments import ServerOptions
from fleetx.launch.server_keys import keys_from_file, new_keys
from fleetx.launch.server_layout import find_server_site
from fleetx.launch.silence import LOST_AFTER
from fleetx.launch.stacks import SIGNAL
from fleetx.launch.supervisor import Supervisor
from fleetx.runtime import cpu_isa, network
from fleetx.runtime.server_support import DEFAULT_SERVER_WAIT, detect_server_support


def main(
    argv: Sequence[str] | None = None,
    prog: str = "fleetrun",
    *,
    examine: Callable[[Mapping[str, str]], cpu_isa.Verdict] = cpu_isa.examine,
) -> int:
    """Run the command line `argv` (default: the process's own) and return its exit code.

    `examine` returns the limit that the CPU needs, given the environment of the workers.
    """
    environment = dict(os.environ)
    try:
        options = parse(sys.argv[1:] if argv is None else argv, environment, prog)
        console.set_up(options.log_level)
        command = _command(options)
        if options.elastic_server and options.server_job is not None:
            raise LaunchError(
                f"--elastic_server {options.elastic_server} is for collective training, but the "
                "flags ask for parameter servers: leave it out."
            )
        site, devices = _find_site(options, environment)
        if options.elastic and options.server_job is not None and site.node_count > 1:
            raise LaunchError(
                f"--elastic is for parameter servers on one machine, but the job has "
                f"{site.node_count}: leave --elastic out, and use --max_restart for restarts."
            )
        if options.elastic and options.server_job is None and site.hosts[1:]:
            refuse_elastic(
                f"the flags list {len(site.hosts)} machines, which cannot come and go",
                "give --nnodes 2:4 and --master host:port in place of the list",
            )
        _check_affinity(options, devices)
        _check_start_method(options, site)
        keys = keys_from_file(options.server_job)
        _make_folder("--log_dir", options.log_dir)
        if options.server_job is not None and options.server_job.state is not None:
            _make_folder("--server_state", options.server_job.state)
    except LaunchError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return error.code
    _greet(options, devices)
    _limit_cpu(environment, examine(environment))
    with ExitStack() as stack:
        scratch = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="fleetrun-", ignore_cleanup_errors=True)
        )
        job = JobPlan(
            options=options,
            devices=devices,
            environment=environment,
            command=command,
            scratch=Path(scratch),
            state=_state_folder(options, stack),
        )
        open_link = partial(_open_link, options, site, devices, keys)
        return run_guarded(Supervisor(job, open_link).run)


def _state_folder(options: Options, stack: ExitStack) -> Path | None:
    """Return the folder of the servers' state: next to the logs, for the duration of the job."""
    servers = options.server_job
    if servers is None or (servers.max_restart == 0 and servers.state is None):
        return None
    if servers.state is not None:
        return Path(servers.state).absolute()
    folder = tempfile.TemporaryDirectory(
        prefix="serverstate-", dir=options.log_dir, ignore_cleanup_errors=True
    )
    return Path(stack.enter_context(folder)).absolute()


def _find_site(options: Options, environment: Mapping[str, str]) -> tuple[Site, Devices]:
    if options.server_job is not None:
        return find_server_site(options, environment)
    devices = choose(options.gpus, options.nproc, environment)
    return find_site(options, devices, environment), devices


def _command(options: Options) -> list[str]:
    """Return the command of a worker; {stacks} is a placeholder for the file of its stacks."""
    script = options.script
    if options.is_module:
        _check_module(script)
        target = ["-m", script]
    else:
        _check_script(script)
        target = [script]
        if not script.endswith(".py") and os.access(script, os.X_OK) and os.path.isfile(script):
            if options.start_method == "fork":
                raise LaunchError(
                    f"--start_method fork is for Python scripts, but {script} is another program: "
                    "leave the flag out."
                )
            return [os.path.abspath(script), *options.script_args]
    python = [sys.executable, "-u"]
    if options.hang_timeout != 0:
        python += [run_script.__file__, "{stacks}", str(SIGNAL)]
    return [*python, *target, *options.script_args]


def _check_start_method(options: Options, site: Site) -> None:
    if options.start_method != "fork":
        return
    if options.server_job is not None:
        raise LaunchError(
            "--start_method fork is for collective training, but the flags ask for parameter "
            "servers, whose environment differs: leave the flag out."
        )
    if site.node_count > 1:
        # Machines that load PyTorch between rendezvous and start would be silent for seconds.
        raise LaunchError(
            "--start_method fork is for jobs of one machine, but this one has "
            f"{site.node_count}: leave the flag out."
        )


def _check_affinity(options: Options, devices: Devices) -> None:
    if options.server_job is not None and options.cpu_affinity != "none":
        raise LaunchError(
            f"--cpu_affinity {options.cpu_affinity} is for collective training, but the flags ask "
            "for parameter servers: leave it out."
        )
    cpu_affinity.choose(options.cpu_affinity, len(devices.shares))


def _check_script(script: str) -> None:
    path = Path(script)
    if path.is_file() or (path / "__main__.py").is_file():
        return
    if script.startswith("-"):
        raise LaunchError(f"{script} is where the script should be: flags come before the script.")
    if path.is_dir():
        raise LaunchError(f"{script!r} is a folder without a __main__.py: name a script in it.")
    raise LaunchError(f"There is no script {script!r} in {os.getcwd()}.")


def _check_module(name: str) -> None:
    # Check only the first part: resolving the rest would import it.
    top = name.partition(".")[0]
    if PathFinder.find_spec(top, [os.getcwd(), *sys.path]) is None:
        raise LaunchError(f"There is no module {name!r} to start with -m.")


def _make_folder(flag: str, folder: str) -> None:
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(4096))  # a full disk has room for names
    except OSError as error:
        raise LaunchError(f"{flag} {folder!r} cannot be written to: {error.strerror}.") from error


def _greet(options: Options, devices: Devices) -> None:
    if options.shown:
        print(configuration(options.shown))
    print(f"launch train in {'GPU' if devices.on_gpu else 'CPU'} mode", flush=True)
    if devices.note:
        console.log.warning(devices.note)


def _limit_cpu(environment: dict[str, str], verdict: cpu_isa.Verdict) -> None:
    """Limit workers and servers to CPU instructions that work here, and log the limit."""
    match verdict.state:
        case cpu_isa.State.LIMITED:
            environment[cpu_isa.VARIABLE] = verdict.limit
            console.log.warning("%s and is set for all processes.", verdict.sentence())
        case cpu_isa.State.BROKEN | cpu_isa.State.UNKNOWN:
            console.log.warning("%s.", verdict.sentence())


def _secret(options: Options, keys: Mapping[str, str] | None) -> bytes:
    """Return the secret of the job: from --job_secret, or from --server_keys."""
    from fleetx.runtime.wire import secret_of

    given = b""
    if options.job_secret is not None:
        try:
            given = Path(options.job_secret).read_bytes().strip()
        except OSError as error:
            raise LaunchError(
                f"--job_secret {options.job_secret} cannot be read: {error.strerror}."
            ) from error
        if len(given) < 16:
            raise LaunchError(
                f"--job_secret {options.job_secret} has {len(given)} bytes; a secret has at least "
                "16, for example those of `openssl rand -hex 32`."
            )
    return secret_of(given, keys["worker_secret"].encode() if keys else b"")


def _longest_silence(job: ServerOptions) -> float:
    """Return how long a machine of a server job may be cut off.

    Workers wait for its servers for `--server_wait`, and then end with an error that names them.
    """
    try:
        wait = job.server_wait or detect_server_support().server_wait or DEFAULT_SERVER_WAIT
    except ValueError as error:  # workers and servers reject the variable
        raise LaunchError(str(error)) from error
    return wait + LOST_AFTER


def _open_link(
    options: Options, site: Site, devices: Devices, keys: Mapping[str, str] | None
) -> Link:
    rules = Rules(
        options.rdzv_timeout,
        options.hang_timeout,
        # Processes of a server job or an elastic one are restarted individually, in place.
        options.max_restart if options.server_job is None and not options.elastic else 0,
        partial(new_keys, options.server_job) if options.server_job else None,
        keys,
        _secret(options, keys),
        LOST_AFTER if options.server_job is None else _longest_silence(options.server_job),
    )
    is_elastic = options.elastic and options.server_job is None
    if site.meeting is None and not is_elastic:
        return Link(site, devices, rules)
    # Imported only for elastic jobs and those on several machines.
    from fleetx.launch.meeting import ticket, warn_without_secret

    own = (site, devices, rules, ticket(options, site, len(devices.shares)))
    first: Callable[..., Link]
    further: Callable[..., Link]
    if is_elastic:
        from fleetx.launch.elastic_election import ElectedLink
        from fleetx.launch.elastic_member import ElasticMember
        from fleetx.launch.elastic_root import ElasticRoot

        if options.elastic_server:
            return ElectedLink(options, *own)
        first, further = partial(ElasticRoot, options), partial(ElasticMember, options)
    else:
        from fleetx.launch.member import Member
        from fleetx.launch.root import Root

        first, further = Root, Member
    if site.meeting is None:
        return first(*own)
    if site.node_rank == 0 or (site.node_rank == -1 and network.is_local(site.meeting[0])):
        try:
            link = first(*own)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or site.node_rank == 0:
                raise LaunchError(
                    f"Cannot listen for machines at {network.join_endpoint(*site.meeting)}: "
                    f"{error.strerror}; choose another port with --started_port or --master, the "
                    "same on all machines."
                ) from error
            # Another launcher of this machine is the first one.
        else:
            warn_without_secret(rules.secret, site.meeting)
            return link
    return further(*own)
