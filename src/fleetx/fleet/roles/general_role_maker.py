"""A role maker for server jobs with a rendezvous given by the script: a folder or an address.

Roles come from the environment, as with PaddleCloudRoleMaker; PADDLE_PSERVER_ID may give the index
of a server instead of its address.
"""

from __future__ import annotations

from typing import Any

from fleetx.fleet.roles.role_maker import PaddleCloudRoleMaker
from fleetx.runtime import role_environment


class GeneralRoleMaker(PaddleCloudRoleMaker):
    """Role maker from the environment, with the rendezvous of groups as arguments.

    Args:
        path: a shared folder as the rendezvous; or
        http_ip_port: 'ip:port', an address of the first worker's machine; without either, or with
            PADDLE_IS_BARRIER_ALL_ROLE=0, there are no groups.
        hdfs_name, hdfs_ugi: the HDFS of `path`; only an ordinary folder is supported.
        init_timeout_seconds, run_timeout_seconds: accepted and ignored.
    """

    def __init__(
        self,
        *,
        path: str = "",
        http_ip_port: str = "",
        hdfs_name: str = "",
        hdfs_ugi: str = "",
        init_timeout_seconds: int = 3600,
        run_timeout_seconds: int = 9999999,
        **_: Any,
    ) -> None:
        super().__init__(is_collective=False)
        if hdfs_name and not hdfs_name.startswith("file:"):
            raise ValueError(
                f"hdfs_name is {hdfs_name!r}, but processes cannot rendezvous through HDFS: give a "
                "path that all machines mount, or http_ip_port."
            )
        self._rendezvous = role_environment.general_rendezvous(
            path.rstrip("/") or path, http_ip_port
        )
        self.current_endpoint = ""

    def _find_role(self) -> None:
        job = role_environment.detect_general_job()
        self._take_place(job)
        self.current_endpoint = job.current_endpoint

    def _join_groups(self) -> None:
        if self._rendezvous is not None:
            self._meet_at(self._rendezvous)
