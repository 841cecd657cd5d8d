"""Another number of servers during a job: `fleetx ps resize`, or `fleet.resize_servers`.

The launcher starts servers that take over, and writes the plan; worker 0 lets the tables move
between two steps (`fleetx.ps.modes.relocation`). When the layout is the new one, the old servers
and what they have kept are no longer needed.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace

from fleetx.launch.console import log
from fleetx.launch.group import Group, ProcessSpec
from fleetx.launch.job_layout import Cluster
from fleetx.launch.launch_errors import LaunchError
from fleetx.launch.server_processes import ServerProcesses
from fleetx.runtime import network
from fleetx.runtime.layout_folder import LayoutFolder, ServerLayout, are_ready


class ServerMoves:
    """The servers of a job on this machine, and those that take over from them."""

    def __init__(self, processes: ServerProcesses, cluster: Cluster) -> None:
        assert processes.state is not None
        self._processes, self._cluster = processes, cluster
        self._files = LayoutFolder(processes.state)
        self._now: list[ProcessSpec] = []
        self._next: list[ProcessSpec] = []
        self._retired: list[ProcessSpec] = []
        self._plan_due: ServerLayout | None = None

    def prepare(self) -> None:
        """Write where the servers are; raise LaunchError if others have kept the state."""
        cluster, files = self._cluster, self._files
        servers = tuple(cluster.servers)
        known = files.read()
        if known is not None and len(known.endpoints) != len(servers):
            raise LaunchError(
                f"--server_num gives {len(servers)} server(s), but {files.path} holds the tables "
                f"of {len(known.endpoints)}: start the job with as many, and change the number "
                "with `fleetx ps resize` while it trains."
            )
        layout = known or ServerLayout(0, servers, len(servers))
        files.remove_before(layout.generation)
        files.write(replace(layout, endpoints=servers, workers=len(cluster.endpoints)))
        plan = files.read_plan()
        if plan is not None and plan.generation <= layout.generation:
            files.drop_plan()  # the launcher was killed when the tables had moved
        elif plan is not None:
            # Workers may have announced this move, and must not find servers that are gone.
            shutil.rmtree(files.handover(plan.generation), ignore_errors=True)
            files.write_plan(self._layout_of(len(plan.endpoints)))

    def begin(self, specs: Sequence[ProcessSpec], group: Group) -> None:
        """Take the first servers; go on with a move in which the job was interrupted."""
        self._now = [spec for spec in specs if spec.role == "server"]
        plan = self._files.read_plan()
        if plan is not None:
            self._start(plan, group)

    def poll(self, group: Group) -> None:
        """Do what is due: begin a move that was asked for, or end one that has happened."""
        if not self._next and not self._retired and self._files.is_asked:
            self._ask(group)
        if self._plan_due is not None:
            # Training goes on while they start.
            handover = self._files.handover(self._plan_due.generation)
            if are_ready(handover, len(self._plan_due.endpoints)):
                self._files.write_plan(self._plan_due)
                self._plan_due = None
        elif self._next:
            self._end_if_moved(group)
        if self._retired and group.is_over(self._retired):
            self._forget()

    def _ask(self, group: Group) -> None:
        count = self._files.take_request()
        now = self._files.read()
        assert count is not None
        assert now is not None
        if len(self._cluster.nodes) > 1:
            reason = "the servers of a job on several machines stay where they were started"
        elif count == len(now.endpoints):
            reason = f"the job has {count} server(s) already"
        else:
            self._plan(count, group)
            return
        log.warning("Tables do not move to %d server(s): %s.", count, reason)
        self._files.refuse(f"Tables do not move to {count} server(s): {reason}.")

    def _plan(self, count: int, group: Group) -> None:
        plan = self._layout_of(count)
        shutil.rmtree(self._files.handover(plan.generation), ignore_errors=True)
        self._start(plan, group)
        self._plan_due = plan

    def _layout_of(self, count: int) -> ServerLayout:
        """Return the layout after the present one, with free ports of this machine."""
        now = self._files.read()
        assert now is not None
        host = self._cluster.here.host
        ports = network.free_ports(count, host)
        endpoints = tuple(network.join_endpoint(host, port) for port in ports)
        return replace(now, generation=now.generation + 1, endpoints=endpoints)

    def _start(self, plan: ServerLayout, group: Group) -> None:
        log.info("%d server(s) start to take over the tables.", len(plan.endpoints))
        self._next = self._processes.successors(self._cluster, plan)
        group.add(self._next)

    def _end_if_moved(self, group: Group) -> None:
        plan, now = self._files.read_plan(), self._files.read()
        if plan is None or now is None or now.generation < plan.generation:
            return
        group.retire(self._now)
        self._files.drop_plan()
        self._now, self._next, self._retired = self._next, [], self._now
        log.info("The tables are on %d server(s) now.", len(now.endpoints))

    def forget(self) -> None:
        """Remove all files of a job that has finished."""
        self._files.remove()

    def _forget(self) -> None:
        """Remove what the servers before this layout have kept and handed over."""
        now = self._files.read()
        if now is not None:
            self._files.remove_before(now.generation)
        self._retired = []
