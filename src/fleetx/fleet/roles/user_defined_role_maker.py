"""Role makers that get the role of the process, and the addresses of the others, from the script.

For jobs that no launcher describes. Arguments are validated here, with the messages of Paddle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.fleet.roles.role_maker import Role, RoleMakerBase
from fleetx.runtime import worker_environment


def check_endpoints(
    name: str, endpoints: Any, *, at_least: int = 1, unique: bool = True
) -> list[str]:
    """Return a list of addresses after validating it."""
    if not isinstance(endpoints, list | tuple):
        raise TypeError(f"{name} must be as string list, not {endpoints!r}.")
    for endpoint in endpoints:
        if not isinstance(endpoint, str):
            raise TypeError(
                f"every element in {name} list must be as string, but one is {endpoint!r}."
            )
    if len(endpoints) < at_least:
        raise ValueError(f"the length of {name} list must be greater than 0.")
    if unique and len(set(endpoints)) != len(endpoints):
        twice = sorted({e for e in endpoints if list(endpoints).count(e) > 1})
        raise ValueError(f"{name} can't have duplicate elements, but has {', '.join(twice)} twice.")
    return list(endpoints)


def _check_index(current_id: Any, count: int, among: str) -> int:
    if not isinstance(current_id, int) or isinstance(current_id, bool):
        raise TypeError(f"current_id must be as int, not {current_id!r}.")
    if current_id < 0:
        raise ValueError(f"current_id must be greater than or equal to 0, not {current_id}.")
    if count and current_id >= count:
        raise ValueError(
            f"current_id must be less than or equal to len({among}) - 1, but it is {current_id} "
            f"and there are {count}."
        )
    return current_id


class UserDefinedRoleMaker(RoleMakerBase):
    """Role maker with the role given by the script.

    Args:
        current_id: the index among the processes of the role.
        role: Role.WORKER or Role.SERVER.
        worker_num: the number of workers; 0 for as many as there are worker_endpoints.
        server_endpoints: the servers' addresses, 'ip:port'; a collective job has none.
        worker_endpoints: the workers' addresses; collective workers rendezvous at the first one.
        is_collective: workers train by collective communication, without servers.
        unique: reject an address that is listed twice.
    """

    def __init__(
        self,
        current_id: int = 0,
        role: Role | int = Role.WORKER,
        worker_num: int = 0,
        server_endpoints: Sequence[str] | None = None,
        *,
        worker_endpoints: Sequence[str] | None = None,
        is_collective: bool = False,
        unique: bool = True,
    ) -> None:
        super().__init__(is_collective)
        if is_collective:
            self._join_workers(current_id, worker_endpoints)
            return
        servers = check_endpoints("server_endpoints", server_endpoints, unique=unique)
        known = worker_endpoints or []
        workers = check_endpoints("worker_endpoints", known, at_least=0, unique=unique)
        if role not in (Role.WORKER, Role.SERVER):
            raise TypeError(f"role must be as Role: Role.WORKER or Role.SERVER, not {role!r}.")
        if not isinstance(worker_num, int) or isinstance(worker_num, bool):
            raise TypeError(f"worker_num must be as int, not {worker_num!r}.")
        worker_num = worker_num or len(workers)
        if worker_num <= 0:
            raise ValueError(
                f"worker_num must be greater than 0, not {worker_num}; give worker_num or "
                "worker_endpoints."
            )
        self._role = Role(role)
        of_servers = (len(servers), "server_endpoints") if role == Role.SERVER else (0, "")
        self._current_id = _check_index(current_id, *of_servers)
        self._trainers_num = worker_num
        self._server_endpoints, self._worker_endpoints = servers, workers

    def _join_workers(self, current_id: int, worker_endpoints: Sequence[str] | None) -> None:
        workers = check_endpoints("worker_endpoints", worker_endpoints)
        self._role = Role.WORKER
        self._current_id = _check_index(current_id, len(workers), "worker_endpoints")
        self._trainers_num = len(workers)
        self._worker_endpoints = workers
        self._worker_environment = worker_environment.from_endpoints(workers, self._current_id)


class UserDefinedCollectiveRoleMaker(UserDefinedRoleMaker):
    """Role maker of a collective job with the rank given by the script.

    Args:
        current_id: the rank of the worker.
        worker_endpoints: the addresses of all workers, 'ip:port'; the first one is the rendezvous.
    """

    def __init__(self, current_id: int = 0, worker_endpoints: Sequence[str] | None = None) -> None:
        super().__init__(current_id, worker_endpoints=worker_endpoints, is_collective=True)
