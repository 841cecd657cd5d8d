"""Utilities over the workers, with the API of Paddle 2.x."""

from typing import Any

from fleetx.checkpoint.file_system import FS
from fleetx.fleet import fleet
from fleetx.fleet import utilities as core
from fleetx.fleet.roles.role_maker import RoleMakerBase

__all__ = ["UtilBase", "UtilFactory"]


class UtilBase(core.UtilBase):
    """Reductions, gathering, barriers and file shards; over the session's workers by default."""

    def __init__(self) -> None:
        super().__init__()
        self.dist_strategy: Any = None
        self.fs_client: FS | None = None

    @property
    def _role(self) -> RoleMakerBase:
        if self.role_maker is None:
            return fleet.util._role
        return self.role_maker

    def _set_strategy(self, dist_strategy: Any) -> None:
        self.dist_strategy = dist_strategy

    def _set_role_maker(self, role_maker: RoleMakerBase | None) -> None:
        self.role_maker = role_maker

    def _set_file_system(self, fs_client: FS) -> None:
        assert isinstance(fs_client, FS), "fs_client must be a paddle.distributed.fleet.utils.FS."
        self.fs_client = fs_client


class UtilFactory:
    """Makes a UtilBase."""

    def _create_util(self, context: dict[str, Any] | None = None) -> UtilBase:
        util = UtilBase()
        given = context or {}
        util._set_strategy(given.get("valid_strategy"))
        util._set_role_maker(given.get("role_maker"))
        return util
