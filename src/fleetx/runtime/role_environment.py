"""The environment of a parameter-server job, and of process groups other than the workers' own.

Workers of a collective job are described by `worker_environment`; this module reads the variables
that PaddleCloud sets for workers and servers, and those that enable gloo groups among them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetx.runtime.worker_environment import check_endpoints, check_index

ROLES = ("TRAINER", "PSERVER", "HETER_TRAINER")


class MissingVariableError(ValueError):
    """The error for a role's environment variable that is not set."""

    def __init__(self, variable: str) -> None:
        super().__init__(f"Can not find {variable}, please check your environment.")
        self.variable = variable


@dataclass(frozen=True)
class ServerJob:
    """The place of a process in a parameter-server job."""

    role: str
    """TRAINER, PSERVER or HETER_TRAINER."""
    index: int
    """Its index among the processes of its role."""
    worker_num: int
    server_endpoints: tuple[str, ...]
    worker_endpoints: tuple[str, ...] = ()
    heter_endpoints: tuple[str, ...] = ()
    current_endpoint: str = ""


@dataclass(frozen=True)
class Rendezvous:
    """The rendezvous of processes that form groups of workers, of servers, or of all."""

    folder: str = ""
    """A shared folder, or empty."""
    endpoint: str = ""
    """Otherwise, the address on which the first process listens."""
    everybody: bool = False
    """Whether there is also a group of all processes."""
    job: str = field(default="")
    """The job's name, which keeps the groups of two jobs apart."""
    worker_listens: bool = False
    """Whether worker 0 listens on `endpoint` instead of server 0."""


def detect_server_job(environ: Mapping[str, str] | None = None) -> ServerJob | None:
    """Return the place in a parameter-server job; None if the environment describes none."""
    env = _environment(environ)
    servers = _list(env, "PADDLE_PSERVERS_IP_PORT_LIST")
    if not servers:
        return None
    check_endpoints("PADDLE_PSERVERS_IP_PORT_LIST", servers)
    workers = _list(env, "PADDLE_TRAINER_ENDPOINTS")
    heter = _list(env, "PADDLE_HETER_TRAINER_IP_PORT_LIST")
    worker_num = _number(env, "PADDLE_TRAINERS_NUM")
    role = _required(env, "TRAINING_ROLE")
    if role not in ROLES:
        raise ValueError(
            f"TRAINING_ROLE must be PSERVER or TRAINER or HETER_TRAINER, but get {role}, please "
            "check your environment."
        )
    if role == "TRAINER":
        index = _number(env, "PADDLE_TRAINER_ID")
        if worker_num:  # Paddle's default of 0 means unspecified
            check_index("PADDLE_TRAINER_ID", index, worker_num)
        current = workers[index] if index < len(workers) else ""
    else:
        port, ip = _required(env, "PADDLE_PORT"), _required(env, "POD_IP")
        current = f"{ip}:{port}"
        variable, among = (
            ("PADDLE_PSERVERS_IP_PORT_LIST", servers)
            if role == "PSERVER"
            else ("PADDLE_HETER_TRAINER_IP_PORT_LIST", heter)
        )
        if current not in among:
            raise ValueError(
                f"POD_IP and PADDLE_PORT describe this process as {current}, but {variable} lists "
                f"{', '.join(among) or 'nothing'}."
            )
        index = among.index(current)
    return ServerJob(role, index, worker_num, servers, workers, heter, current)


def detect_general_job(environ: Mapping[str, str] | None = None) -> ServerJob:
    """Return the place of a process whose workers are all listed and whose server may be numbered.

    PADDLE_PSERVER_ID is a server's index in PADDLE_PSERVERS_IP_PORT_LIST.
    """
    env = dict(_environment(environ))
    for variable in ("PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_TRAINER_ENDPOINTS"):
        _required(env, variable)
    env["PADDLE_TRAINERS_NUM"] = str(len(_list(env, "PADDLE_TRAINER_ENDPOINTS")))
    if env.get("TRAINING_ROLE") == "PSERVER" and env.get("PADDLE_PSERVER_ID"):
        servers, number = (
            _list(env, "PADDLE_PSERVERS_IP_PORT_LIST"),
            _number(env, "PADDLE_PSERVER_ID"),
        )
        if number >= len(servers):
            raise ValueError(
                f"PADDLE_PSERVER_ID is {number}, but PADDLE_PSERVERS_IP_PORT_LIST lists "
                f"{len(servers)} servers (counted from 0)."
            )
        env["POD_IP"], _, env["PADDLE_PORT"] = servers[number].rpartition(":")
    job = detect_server_job(env)
    if job is None:
        raise MissingVariableError("PADDLE_PSERVERS_IP_PORT_LIST")
    return job


def general_rendezvous(
    folder: str, endpoint: str, environ: Mapping[str, str] | None = None
) -> Rendezvous | None:
    """Return the rendezvous at a script's folder or address; None if it gives neither."""
    env = _environment(environ)
    if not (folder or endpoint) or env.get("PADDLE_IS_BARRIER_ALL_ROLE", "1") == "0":
        return None
    if endpoint and endpoint.count(":") != 1:
        raise ValueError(f"http_ip_port must be an address 'ip:port', not {endpoint!r}.")
    return Rendezvous(
        folder="" if endpoint else folder,
        endpoint=endpoint,
        everybody=True,
        job=env.get("SYS_JOB_ID", ""),
        worker_listens=True,
    )


def detect_rendezvous(
    environ: Mapping[str, str] | None = None, *, first_worker: str = ""
) -> Rendezvous | None:
    """Return the rendezvous of worker and server groups; None unless PADDLE_WITH_GLOO enables it.

    `first_worker` is the rendezvous address of collective workers.
    """
    env = _environment(environ)
    if env.get("PADDLE_WITH_GLOO", "0") not in ("1", "2"):
        return None
    everybody = env["PADDLE_WITH_GLOO"] == "2"
    job = env.get("SYS_JOB_ID", "")
    kind = env.get("PADDLE_GLOO_RENDEZVOUS", "0")
    if kind == "3":
        endpoint = first_worker or env.get("PADDLE_GLOO_HTTP_ENDPOINT", "")
        if endpoint.count(":") != 1:
            raise ValueError(
                f"PADDLE_GLOO_HTTP_ENDPOINT must be an address 'ip:port', not {endpoint!r}."
            )
        return Rendezvous(endpoint=endpoint, everybody=everybody, job=job)
    if kind not in ("1", "2"):
        raise ValueError(
            "PADDLE_GLOO_RENDEZVOUS must be 1 (HDFS), 2 (a shared folder) or 3 (an address), not "
            f"{kind!r}."
        )
    folder = env.get("PADDLE_GLOO_FS_PATH", "")
    if not folder:
        raise ValueError("PADDLE_GLOO_FS_PATH must name the folder of the rendezvous.")
    if kind == "1":
        _check_hdfs(env)
    return Rendezvous(folder=folder, everybody=everybody, job=job)


def _check_hdfs(env: Mapping[str, str]) -> None:
    """Reject a real HDFS; the name NULL means an ordinary folder."""
    for variable in ("PADDLE_GLOO_FS_NAME", "PADDLE_GLOO_FS_UGI"):
        if not env.get(variable):
            raise MissingVariableError(variable)
    name = env["PADDLE_GLOO_FS_NAME"]
    if name != "NULL" and not name.startswith("file:"):
        raise ValueError(
            f"PADDLE_GLOO_FS_NAME is {name!r}, but a rendezvous in HDFS is not supported: set "
            "PADDLE_GLOO_RENDEZVOUS to 2 with a folder that all machines mount, or to 3 with an "
            "address."
        )


def _environment(environ: Mapping[str, str] | None) -> Mapping[str, str]:
    return os.environ if environ is None else environ


def _list(env: Mapping[str, str], variable: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in env.get(variable, "").split(",") if part.strip())


def _required(env: Mapping[str, str], variable: str) -> str:
    if variable not in env:
        raise MissingVariableError(variable)
    return env[variable]


def _number(env: Mapping[str, str], variable: str) -> int:
    text = _required(env, variable)
    if not text.strip().isdecimal():
        raise ValueError(f"{variable} must be a whole number, not {text!r}.")
    return int(text)
