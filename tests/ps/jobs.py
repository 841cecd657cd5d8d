"""Complete jobs with servers and workers, whose roles come from the environment."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable
from typing import Any

import torch
from starter import starter

from fleetx import fleet
from fleetx.fleet.session import Fleet
from ports import free_endpoints
from waiting import LIMIT


def _run(target: Callable[..., Any], env: dict[str, str], arguments: Any, out: Any) -> None:
    os.environ.update(env)
    torch.set_num_threads(1)
    try:
        out.send((target(*arguments), None))
    except BaseException:
        out.send((None, traceback.format_exc()))
        raise


def run_job(
    target: Callable[..., Any],
    servers: int,
    workers: int,
    *arguments: Any,
) -> list[Any]:
    """Call a function in every process of a job; return what the workers returned."""
    endpoints = free_endpoints(servers)
    common = {
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(endpoints),
        "PADDLE_TRAINERS_NUM": str(workers),
        "POD_IP": "127.0.0.1",
    }
    places = [
        {"TRAINING_ROLE": "PSERVER", "PADDLE_PORT": endpoint.rpartition(":")[2]}
        for endpoint in endpoints
    ]
    places += [{"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": str(i)} for i in range(workers)]
    running = []
    try:
        for place in places:
            ours, theirs = starter.Pipe()
            process = starter.Process(
                target=_run, args=(target, {**common, **place}, arguments, theirs), daemon=True
            )
            process.start()
            theirs.close()
            running.append((process, ours))
        results = [_receive(ours) for _, ours in running]
        for process, _ in running:
            process.join(LIMIT)
        assert [process.exitcode for process, _ in running] == [0] * len(running)
        return results[servers:]
    finally:
        for process, pipe in running:
            process.kill()
            process.join()
            process.close()
            pipe.close()


def _receive(pipe: Any) -> Any:
    assert pipe.poll(LIMIT), f"a process of the job had no result after {LIMIT:.0f} s"
    value, error = pipe.recv()
    assert error is None, error
    return value


def role(kind: Any, index: int, case: Any) -> Any:
    """Return a process's role in a case, which has `endpoints` and `workers`."""
    return fleet.UserDefinedRoleMaker(index, kind, case.workers, list(case.endpoints))


def _serve_all(cases: list[Any], index: int) -> None:
    """Run one of the servers of every case, all at the same time."""

    def serve(case: Any) -> None:
        session = Fleet()
        session.init(role(fleet.Role.SERVER, index, case))
        session.init_server(getattr(case, "load_from", None))
        session.run_server()

    threads = [threading.Thread(target=serve, args=(c,)) for c in cases if index < c.servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _cases(train: Callable[[Any, int], Any], cases: list[Any]) -> Any:
    if os.environ["TRAINING_ROLE"] == "PSERVER":
        own = f"127.0.0.1:{os.environ['PADDLE_PORT']}"
        _serve_all(cases, os.environ["PADDLE_PSERVERS_IP_PORT_LIST"].split(",").index(own))
        return None
    worker = int(os.environ["PADDLE_TRAINER_ID"])
    return [train(case, worker) if worker < case.workers else None for case in cases]


def run_cases(train: Callable[[Any, int], Any], cases: list[Any]) -> list[Any]:
    """Train many cases, each with its own servers, in few processes; return results by worker."""
    for case in cases:
        case.endpoints = tuple(free_endpoints(case.servers))
    servers, workers = max(c.servers for c in cases), max(c.workers for c in cases)
    return run_job(_cases, servers, workers, train, cases)
