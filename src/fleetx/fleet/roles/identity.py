"""The part of a session that queries the role maker: ranks, counts and addresses."""

from __future__ import annotations

from fleetx.fleet.roles.role_maker import RoleMakerBase
from fleetx.fleet.utilities import UtilBase


class Identity:
    """Ranks, counts and addresses of workers and servers."""

    _role_maker: RoleMakerBase | None
    _util: UtilBase | None

    @property
    def _role(self) -> RoleMakerBase:
        if self._role_maker is None:
            raise RuntimeError("fleet is not initialised: call fleet.init() first.")
        return self._role_maker

    @property
    def role_maker(self) -> RoleMakerBase:
        """The role maker of the job."""
        return self._role

    @property
    def util(self) -> UtilBase:
        """Reductions, gathering, barriers and file shards over the workers."""
        if self._util is None:
            raise RuntimeError("fleet is not initialised: call fleet.init() first.")
        return self._util

    def is_first_worker(self) -> bool:
        """Return whether this is worker 0."""
        return self._role.is_first_worker()

    def worker_index(self) -> int:
        """Return the rank of this worker."""
        return self._role.worker_index()

    rank = worker_index

    def worker_num(self) -> int:
        """Return the number of workers."""
        return self._role.worker_num()

    nranks = world_size = worker_num

    def node_num(self) -> int:
        """Return the number of machines."""
        return self._role.node_num()

    def local_rank(self) -> int:
        """Return the rank of this worker on its machine."""
        return self._role.local_rank()

    def is_worker(self) -> bool:
        """Return whether this process trains."""
        return self._role.is_worker()

    def is_server(self) -> bool:
        """Return whether this process is a parameter server."""
        return self._role.is_server()

    def worker_endpoints(self, to_string: bool = False) -> list[str] | str:
        """Return the addresses of the workers, as a list or joined by commas."""
        found = self._role.worker_endpoints()
        return ",".join(found) if to_string else found

    def server_endpoints(self, to_string: bool = False) -> list[str] | str:
        """Return the addresses of the servers, as a list or joined by commas."""
        found = self._role.server_endpoints()
        return ",".join(found) if to_string else found

    def server_num(self) -> int:
        """Return the number of servers."""
        return self._role.server_num()

    def server_index(self) -> int:
        """Return the index of this server."""
        return self._role.server_index()
