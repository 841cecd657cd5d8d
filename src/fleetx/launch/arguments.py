"""The command line of fleetrun: the flags of Fleet 1.x, 2.0 and 2.3+, in one parser.

Each flag keeps its Fleet name. Equivalent names, including torchrun's, are aliases of one flag,
dashes and underscores are interchangeable, and any unambiguous prefix of a name is accepted.
Some flags take a default from the environment, as in Fleet's (PADDLE_*) and the Kubeflow trainer's
(PET_*) launchers. Arguments after the script belong to the script and are passed on unchanged.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from fleetx.launch import elastic_arguments, server_arguments
from fleetx.launch.launch_errors import LaunchError
from fleetx.launch.server_arguments import ServerOptions, checked, seconds

# Flags of torchrun that other flags replace.
_TORCHRUN_FLAGS = ("master_addr", "master_port", "standalone")

_LOG_DIR = "log"
_START_METHODS = ("spawn", "fork")

# Flag -> the variables that provide its default, in order of precedence.
_FROM_ENVIRONMENT = {
    "master": ("PADDLE_MASTER",),
    "nnodes": ("PADDLE_NNODES", "PET_NNODES"),
    "rank": ("PADDLE_RANK", "PET_NODE_RANK"),
    "nproc_per_node": ("PADDLE_NPROC_PER_NODE", "PET_NPROC_PER_NODE"),
    "gpus": ("PADDLE_DEVICES",),
    "started_port": ("FLAGS_START_PORT", "PADDLE_START_PORT"),
    "log_dir": ("PADDLE_LOG_DIR",),
    "job_id": ("PADDLE_JOB_ID",),
    "max_restart": ("PADDLE_MAX_RESTART", "PET_MAX_RESTARTS"),
    "start_method": ("FLEETX_START_METHOD",),
}


@dataclass(frozen=True)
class Options:
    """The settings requested by the command line and the environment."""

    script: str
    script_args: tuple[str, ...]
    is_module: bool = False
    gpus: str | None = None
    nproc: int | None = None
    ips: str = "127.0.0.1"
    host: str | None = None
    started_port: int | None = None
    master: str | None = None
    nnodes: int = 1
    """The number of machines; the maximum in an elastic job."""
    least_nodes: int = 1
    """The minimum number of machines of an elastic job."""
    rank: int = -1
    job_id: str = "default"
    job_secret: str | None = None
    """A file with the secret that the launchers of all machines share."""
    log_dir: str = "log"
    has_log_dir: bool = False
    """Whether the folder was given explicitly, not taken from the default."""
    log_all: bool = False
    log_overwrite: bool = False
    log_level: int = logging.INFO
    use_paddlecloud: bool = False
    max_restart: int = 0
    elastic: bool = False
    """Whether training continues with the remaining workers when one is lost."""
    elastic_timeout: float = 30.0
    """Seconds without a heartbeat after which a worker of an elastic job counts as lost."""
    elastic_server: str = ""
    """The etcd in which machines of an elastic job look up the first one."""
    rdzv_timeout: float = 300.0
    hang_timeout: float | None = None
    """Seconds without progress that count as a hang; None: derived from past steps, 0: never."""
    backend: str | None = None
    start_method: str = "auto"
    """How workers are started: spawn, fork, or auto."""
    cpu_affinity: str = "none"
    with_gloo: str = "0"
    server_job: ServerOptions | None = None
    """Settings of parameter servers; None for collective training."""
    shown: Mapping[str, Any] = field(default_factory=dict)
    """Every flag under its Fleet name, for the configuration banner; empty to print no banner."""

    @property
    def nodes_text(self) -> str:
        """The number or range of machines, as in --nnodes."""
        same = self.least_nodes == self.nnodes
        return f"{self.nnodes}" if same else f"{self.least_nodes}:{self.nnodes}"


class _Parser(argparse.ArgumentParser):
    """An argparse parser that raises an exception with one sentence instead of exiting."""

    def error(self, message: str) -> NoReturn:
        raise LaunchError(f"{message[:1].upper()}{message[1:]}; see --help.")

    def accept_dashes(self) -> None:
        """Let every flag be written with dashes too."""
        for name, action in list(self._option_string_actions.items()):
            self._option_string_actions["--" + name[2:].replace("_", "-")] = action

    def flags(self) -> list[argparse.Action]:
        """Return the flags that the help shows."""
        return [a for a in self._actions if a.help is not argparse.SUPPRESS and a.option_strings]


def parse(argv: Sequence[str], environment: Mapping[str, str], prog: str = "fleetrun") -> Options:
    """Parse a command line; raise LaunchError with one sentence if it is invalid."""
    parser = _parser(prog)
    given = _parse_completed(parser, list(argv))
    if given.training_script is None:
        raise LaunchError("No script was named: fleetrun [flags] train.py [arguments of train.py].")
    _join_master(given)
    _fill_from_environment(given, environment)
    elastic_arguments.check(given)
    server_job = server_arguments.read_flags(given)
    has_log_dir = given.log_dir is not None
    if given.log_dir is None:
        given.log_dir = _LOG_DIR
    least_nodes, nnodes = elastic_arguments.node_counts(given.nnodes, given.elastic)
    shown = dict(vars(given))
    print_config = shown.pop("print_config")
    for name in _TORCHRUN_FLAGS:
        del shown[name]
    return Options(
        script=given.training_script,
        script_args=tuple(given.training_script_args),
        is_module=given.module,
        gpus=given.gpus,
        nproc=checked("nproc_per_node", given.nproc_per_node, 1),
        ips=given.ips,
        host=given.host,
        started_port=checked("started_port", given.started_port, 1, 65535),
        master=given.master,
        nnodes=nnodes,
        least_nodes=least_nodes,
        rank=int(given.rank),
        job_id=given.job_id,
        job_secret=given.job_secret,
        log_dir=given.log_dir,
        has_log_dir=has_log_dir,
        log_all=given.log_all,
        log_overwrite=given.log_overwrite,
        log_level=_level(given.log_level),
        use_paddlecloud=given.use_paddlecloud,
        max_restart=elastic_arguments.restarts(
            given.max_restart, given.elastic_level > 0 or given.elastic
        ),
        elastic=given.elastic,
        elastic_server=given.elastic_server or "",
        elastic_timeout=seconds("elastic_timeout", given.elastic_timeout) or 30.0,
        rdzv_timeout=seconds("rdzv_timeout", given.rdzv_timeout) or 300.0,
        hang_timeout=given.hang_timeout and seconds("hang_timeout", given.hang_timeout),
        backend=given.backend,
        start_method=_start_method(given.start_method),
        cpu_affinity=given.cpu_affinity,
        with_gloo=given.with_gloo,
        server_job=server_job,
        shown=shown if print_config else {},
    )


def _parser(prog: str) -> _Parser:
    parser = _Parser(
        prog=prog,
        description="Start the workers of one training job on this machine, and stop all of them "
        "when one fails. Run the same command on every machine of the job.",
        allow_abbrev=False,
    )
    here = parser.add_argument_group("this machine")
    here.add_argument("--gpus", "--selected_gpus", "--devices", metavar="0,1")
    here.add_argument(
        "--nproc_per_node",
        type=int,
        metavar="N",
        help="workers on this machine (default: one per GPU, or one)",
    )
    here.add_argument(
        "--host", "--node_ip", "--local_addr", metavar="IP", help="this machine's address"
    )
    here.add_argument(
        "--log_dir",
        help="folder of workerlog.N (default: log); if given, workers record their steps "
        "there, see fleetx report",
    )
    here.add_argument("--log_all", action="store_true", help="show the output of all workers")
    here.add_argument("--log_overwrite", type=_truth, nargs="?", const=True, default=False)
    here.add_argument("--log_level", default="INFO")
    here.add_argument("--print_config", type=_truth, nargs="?", const=True, default=True)
    here.add_argument(
        "--start_method",
        metavar="spawn|fork",
        help="fork: import PyTorch once and fork the workers (default for several workers of a "
        "script that imports it)",
    )
    here.add_argument("--cpu_affinity", default="none", help="pin workers to cores: auto, 0-3;4-7")
    here.add_argument("-m", "--module", action="store_true", help="the script is a module name")
    job = parser.add_argument_group("all machines")
    job.add_argument("--ips", "--cluster_node_ips", default="127.0.0.1", metavar="IP,IP")
    job.add_argument("--started_port", "--start_port", type=int, metavar="PORT")
    job.add_argument("--master", "--rdzv_endpoint", metavar="HOST:PORT", help="rendezvous address")
    job.add_argument("--master_addr", help=argparse.SUPPRESS)
    job.add_argument("--master_port", type=int, help=argparse.SUPPRESS)
    job.add_argument("--standalone", action="store_true", help=argparse.SUPPRESS)
    job.add_argument(
        "--nnodes", default="1", metavar="N", help="number of machines; with --elastic also 2:4"
    )
    job.add_argument(
        "--rank", "--node_rank", type=int, default=-1, metavar="N", help="index of this machine"
    )
    job.add_argument("--job_id", "--rdzv_id", default="default")
    job.add_argument(
        "--job_secret",
        metavar="FILE",
        help="the job's secret, on every machine: only machines that have it can join",
    )
    job.add_argument("--use_paddlecloud", action="store_true", help="use PaddleCloud's variables")
    job.add_argument("--run_mode", default="collective")
    job.add_argument("--backend", help="gloo: no shared memory on one machine")
    job.add_argument("--with_gloo", default="0", help=argparse.SUPPRESS)
    job.add_argument("--gloo_port", type=int, help=argparse.SUPPRESS)
    care = parser.add_argument_group("failures")
    care.add_argument(
        "--max_restart", "--max_restarts", type=int, metavar="N", help="restarts after a failure"
    )
    care.add_argument("--rdzv_timeout", type=float, default=300.0, metavar="S")
    care.add_argument(
        "--hang_timeout",
        type=float,
        metavar="S",
        help="fail after S seconds without a step; 0: never (default: ten times the longest step)",
    )
    elastic_arguments.add_flags(parser)
    server_arguments.add_flags(parser)
    parser.add_argument("training_script", nargs="?", metavar="script.py")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER, metavar="...")
    parser.accept_dashes()
    return parser


def _parse_completed(parser: _Parser, argv: list[str]) -> argparse.Namespace:
    """Parse flags, accepting any unambiguous prefix of a flag.

    argparse's own abbreviations would also match the arguments of the script.
    """
    for _ in argv:
        given, unknown = parser.parse_known_args(argv)
        if not unknown:
            break
        flag, equals, value = unknown[0].partition("=")
        argv[argv.index(unknown[0])] = _complete(parser, flag) + equals + value
    else:
        given = parser.parse_args(argv)
    return given


def _complete(parser: _Parser, flag: str) -> str:
    """Return the flag that a prefix stands for."""
    shown, word = parser.flags(), flag.replace("-", "_")
    meant = [
        next(name for name in action.option_strings if name.replace("-", "_").startswith(word))
        for action in shown
        if any(name.replace("-", "_").startswith(word) for name in action.option_strings)
    ]
    if flag.startswith("--") and len(meant) == 1:
        return meant[0]
    if flag.startswith("--") and meant:
        raise LaunchError(f"{flag} is ambiguous: write {' or '.join(meant)} in full.")
    raise LaunchError(_unknown_flag(shown, flag))


def _unknown_flag(shown: Sequence[argparse.Action], flag: str) -> str:
    from difflib import get_close_matches  # imported only on errors

    known = [name for action in shown for name in action.option_strings]
    close = get_close_matches(flag, known, n=1)
    way_out = f"did you mean {close[0]}?" if close else "see --help for the list of flags."
    return f"Unknown flag {flag}: {way_out}"


def _join_master(given: argparse.Namespace) -> None:
    """Combine torchrun's two flags into one address."""
    address, port = given.master_addr, given.master_port
    if given.standalone and given.nnodes != "1":
        raise LaunchError(f"--standalone is for one machine, but --nnodes is {given.nnodes}.")
    if address is None and port is None:
        return
    if given.master is not None:
        raise LaunchError(
            "--master and --master_addr both set the rendezvous address: leave one out."
        )
    if given.nnodes != "1":  # torchrun's flags have no effect on one machine
        given.master = f"{address or '127.0.0.1'}:{29500 if port is None else port}"


def _fill_from_environment(given: argparse.Namespace, environment: Mapping[str, str]) -> None:
    defaults = {"nnodes": "1", "rank": -1, "job_id": "default"}
    numbers = ("rank", "nproc_per_node", "started_port", "max_restart")
    for name, variables in _FROM_ENVIRONMENT.items():
        text = next((environment[v] for v in variables if environment.get(v)), None)
        if text is None or getattr(given, name) != defaults.get(name):
            continue
        if name == "nproc_per_node" and not text.isdecimal():
            continue  # the Kubeflow trainer also sets auto, cpu or gpu, which is the default here
        if name in numbers and not text.lstrip("-").isdecimal():
            raise LaunchError(f"The environment sets --{name} to {text!r}, which is not a number.")
        setattr(given, name, int(text) if name in numbers else text)
    if given.master is None and environment.get("PET_MASTER_ADDR"):
        port = environment.get("PET_MASTER_PORT", "29500")
        given.master = f"{environment['PET_MASTER_ADDR']}:{port}"


def _start_method(text: str | None) -> str:
    if text is None:
        return "auto"
    if text not in _START_METHODS:
        raise LaunchError(f"--start_method is {' or '.join(_START_METHODS)}, not {text!r}.")
    return text


def _level(text: str) -> int:
    if text.isdecimal():  # Fleet 1.x: the number of Python's logging module
        return int(text)
    level = logging.getLevelNamesMapping().get(text.upper())
    if level is None:
        raise LaunchError(f"--log_level {text} is unknown: use DEBUG, INFO, WARNING or ERROR.")
    return level


def _truth(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off", ""):
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
