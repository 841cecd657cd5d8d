"""Role makers of Paddle 2.x."""

from typing import Any

from fleetx.fleet.roles import role_maker as core
from fleetx.fleet.roles import user_defined_role_maker as user_defined
from fleetx.fleet.roles.role_maker import Role
from paddle._role_makers import RoleMakerBase

# The arguments that Paddle reads; scripts also pass Gloo's rendezvous (path, dfs.name, …).
_TOLD = ("current_id", "role", "worker_num", "worker_endpoints", "server_endpoints")


class PaddleCloudRoleMaker(RoleMakerBase, core.PaddleCloudRoleMaker):
    """Reads the role from the environment."""

    _endpoints_decide = True

    def __init__(self, is_collective: bool = False, **kwargs: Any) -> None:
        super().__init__(is_collective)


class UserDefinedRoleMaker(RoleMakerBase, user_defined.UserDefinedRoleMaker):
    """Takes the role from the script."""

    def __init__(self, is_collective: bool = False, init_gloo: bool = False, **kwargs: Any) -> None:
        for name in ("server_endpoints", "worker_endpoints"):
            if isinstance(kwargs.get(name), str):
                kwargs[name] = kwargs[name].split(",")
        # Paddle 2.x ignores other arguments, and accepts an address that is listed twice.
        known = {name: value for name, value in kwargs.items() if name in _TOLD}
        user_defined.UserDefinedRoleMaker.__init__(
            self, is_collective=is_collective, unique=False, **known
        )
