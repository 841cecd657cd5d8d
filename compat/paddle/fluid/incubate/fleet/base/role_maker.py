"""Role makers of Paddle 1.x."""

from typing import Any

from fleetx.fleet.roles import general_role_maker, mpi_role_maker
from fleetx.fleet.roles import role_maker as core
from fleetx.fleet.roles import user_defined_role_maker as user_defined
from fleetx.fleet.roles.role_maker import Role
from fleetx.runtime.role_environment import MissingVariableError
from paddle._role_makers import RoleMakerBase

__all__ = [
    "GeneralRoleMaker",
    "MPISymetricRoleMaker",
    "PaddleCloudRoleMaker",
    "Role",
    "RoleMakerBase",
    "UserDefinedCollectiveRoleMaker",
    "UserDefinedRoleMaker",
]


class PaddleCloudRoleMaker(RoleMakerBase, core.PaddleCloudRoleMaker):
    """Reads the role from the environment."""

    _endpoints_decide = True

    def __init__(self, is_collective: bool = False) -> None:
        super().__init__(is_collective)

    def _find_in_server_job(self) -> None:
        try:
            super()._find_in_server_job()
        except MissingVariableError as error:
            raise KeyError(error.variable) from error
        except ValueError as error:
            raise ValueError(
                f"the environment has no valid role of PaddleCloud: {error}"
            ) from error
        if self._non_distributed:
            raise KeyError("PADDLE_PSERVERS_IP_PORT_LIST")


class UserDefinedRoleMaker(RoleMakerBase, user_defined.UserDefinedRoleMaker):
    """Takes the role of a process of a parameter-server job from the script."""

    def __init__(
        self,
        current_id: int = 0,
        role: Role | int = Role.WORKER,
        worker_num: int = 0,
        server_endpoints: Any = None,
    ) -> None:
        user_defined.UserDefinedRoleMaker.__init__(
            self, current_id, role, worker_num, server_endpoints
        )


class UserDefinedCollectiveRoleMaker(RoleMakerBase, user_defined.UserDefinedCollectiveRoleMaker):
    """Takes the rank of a worker of a collective job from the script."""

    def __init__(self, current_id: int = 0, worker_endpoints: Any = None) -> None:
        user_defined.UserDefinedCollectiveRoleMaker.__init__(self, current_id, worker_endpoints)


class _WithGroups(RoleMakerBase):
    """Reductions and barriers of role makers whose processes form groups by themselves."""

    def all_gather(self, value: Any, comm_world: str = "all") -> Any:
        """Return the values of all workers and servers."""
        return super().all_gather(value, comm_world)

    def all_reduce_worker(self, input: Any, output: Any, mode: str = "sum") -> None:
        """Reduce over all workers into `output`; servers do nothing."""
        self.generate_role()
        if self._is_asked("all_reduce_worker") and len(input):
            super().all_reduce_worker(input, output, mode)

    def barrier_worker(self) -> None:
        """Wait for all workers; servers do nothing."""
        self.generate_role()
        if self._is_asked("barrier_worker"):
            super().barrier_worker()

    def get_local_endpoint(self) -> str:
        """Return this process's address."""
        self.generate_role()
        among = self._server_endpoints if self.is_server() else self._worker_endpoints
        return among[self._current_id]

    def _is_asked(self, function: str) -> bool:
        if not self.is_worker():
            print(f"warning: current role is not worker in {function}")
        return self.is_worker()

    def _all_gather(self, input: Any, comm_world: str = "all") -> Any:
        return self.all_gather(input, comm_world)

    def _worker_gather(self, input: Any) -> Any:
        self.generate_role()
        return self.all_gather(input, "worker") if self.is_worker() else None

    def _all_reduce(self, input: Any, output: Any, mode: str = "sum") -> None:
        self.all_reduce_worker(input, output, mode)

    def _barrier_worker(self) -> None:
        self.barrier_worker()

    def _barrier_server(self) -> None:
        self.generate_role()
        if self.is_server():
            self.barrier("server")

    def _barrier_all(self) -> None:
        self.barrier_all()

    def _get_rank(self) -> int:
        self.generate_role()
        return self._current_id + (self._trainers_num if self.is_server() else 0)

    def _get_size(self) -> int:
        self.generate_role()
        return self._trainers_num + len(self._server_endpoints)

    def _finalize(self) -> None:
        """Do nothing: groups end with the process."""


class GeneralRoleMaker(_WithGroups, general_role_maker.GeneralRoleMaker):
    """Reads the role from the environment; the arguments give the rendezvous."""

    def __init__(self, **kwargs: Any) -> None:
        general_role_maker.GeneralRoleMaker.__init__(self, **kwargs)

    def _find_role(self) -> None:
        try:
            super()._find_role()
        except MissingVariableError as error:
            raise KeyError(error.variable) from error


class MPISymetricRoleMaker(_WithGroups, mpi_role_maker.MPISymetricRoleMaker):
    """Even ranks of mpirun are servers, odd ones workers."""

    def __init__(self) -> None:
        mpi_role_maker.MPISymetricRoleMaker.__init__(self)

    def _require_role(self) -> None:
        if not self._role_is_generated:
            raise NameError("call generate_role() first.")

    def _get_rank(self) -> int:
        self.generate_role()
        return 2 * self._current_id + int(self.is_worker())


def default_role_maker() -> RoleMakerBase:
    """Return the role maker of `fleet.init()`: MPI's."""
    mpi_role_maker.check_mpirun()
    return MPISymetricRoleMaker()
