"""The common part of role makers of 1.x and 2.x: both spellings of their methods.

2.x has an underscore before every name. The base class, which has no role, prints a warning if it
would have to communicate.
"""

from typing import Any

from fleetx.fleet.roles import role_maker as core

_UNDERSCORED = (
    "is_worker", "is_server", "is_first_worker", "is_heter_worker", "is_non_distributed",
    "worker_index", "server_index", "role_id", "worker_num", "server_num", "heter_worker_num",
    "node_num", "generate_role", "barrier_worker",
)  # fmt: skip


class RoleMakerBase(core.RoleMakerBase):
    """Base of role makers; has no role itself."""

    @property
    def _is_collective(self) -> bool:
        return self.is_collective

    def get_trainer_endpoints(self) -> list[str]:
        """Return the addresses of the workers."""
        return self.worker_endpoints()

    def get_pserver_endpoints(self) -> list[str]:
        """Return the addresses of the servers."""
        return self.server_endpoints()

    _get_trainer_endpoints = get_trainer_endpoints
    _get_pserver_endpoints = get_pserver_endpoints

    def _get_heter_worker_endpoints(self) -> list[str]:
        self.generate_role()
        return list(self._heter_endpoints)

    def _to_string(self) -> str:
        return self.to_string()

    def _get_node_num(self) -> int:
        return self.node_num()

    def _get_local_rank(self) -> int:
        return self.local_rank()

    def _is_nobody(self, action: str) -> bool:
        self.generate_role()
        if self._role is None:
            print(f"warning: RoleMakerBase does not have {action}.")
        return self._role is None

    def all_gather(self, value: Any, comm_world: str = "worker") -> Any:
        """Return the values of all processes; None if this role maker cannot communicate."""
        return None if self._is_nobody("all gather") else super().all_gather(value, comm_world)

    def all_reduce(self, value: Any, mode: str = "sum", comm_world: str = "worker") -> Any:
        """Return the reduced values; None if this role maker cannot communicate."""
        if self._is_nobody("all reduce worker"):
            return None
        return super().all_reduce(value, mode, comm_world)

    def all_reduce_worker(self, input: Any, output: Any, mode: str = "sum") -> None:
        """Reduce over all workers into `output`."""
        if not self._is_nobody("all reduce worker"):
            super().all_reduce_worker(input, output, mode)

    def barrier(self, comm_world: str = "worker") -> None:
        """Wait for all processes of a world."""
        if not self._is_nobody(f"barrier {comm_world}"):
            super().barrier(comm_world)

    def _all_gather(self, input: Any, comm_world: str = "worker") -> Any:
        return self.all_gather(input, comm_world)

    def _all_reduce(self, input: Any, mode: str = "sum", comm_world: str = "worker") -> Any:
        return self.all_reduce(input, mode, comm_world)

    def _barrier(self, comm_world: str = "worker") -> None:
        self.barrier(comm_world)


def _underscored(name: str) -> Any:
    def method(self: RoleMakerBase) -> Any:
        return getattr(self, name)()

    method.__name__ = f"_{name}"
    return method


for _name in _UNDERSCORED:
    setattr(RoleMakerBase, f"_{_name}", _underscored(_name))
