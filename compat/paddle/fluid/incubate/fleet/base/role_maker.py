"""Role makers of Paddle 1.x."""

from typing import Any

from fleetx.fleet import role_maker as core
from fleetx.fleet.role_maker import Role
from fleetx.launch.role_environment import MissingVariableError
from paddle._coverage import missing
from paddle._role_makers import RoleMakerBase

__all__ = [
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
                f"something wrong with PaddleCloud, please check environment: {error}"
            ) from error
        if self._non_distributed:
            raise KeyError("PADDLE_PSERVERS_IP_PORT_LIST")


class UserDefinedRoleMaker(RoleMakerBase, core.UserDefinedRoleMaker):
    """Is told by the script who this process of a parameter-server job is."""

    def __init__(
        self,
        current_id: int = 0,
        role: Role | int = Role.WORKER,
        worker_num: int = 0,
        server_endpoints: Any = None,
    ) -> None:
        core.UserDefinedRoleMaker.__init__(self, current_id, role, worker_num, server_endpoints)


class UserDefinedCollectiveRoleMaker(RoleMakerBase, core.UserDefinedCollectiveRoleMaker):
    """Is told by the script who this worker of a collective job is."""

    def __init__(self, current_id: int = 0, worker_endpoints: Any = None) -> None:
        core.UserDefinedCollectiveRoleMaker.__init__(self, current_id, worker_endpoints)


__getattr__ = missing(__name__)
