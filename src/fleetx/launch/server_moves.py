"""Another number of servers during a job: `fleetx ps resize`, or `fleet.resize_servers`.

Every machine's launcher starts its share of the servers that take over (`move_planning`), and the
first writes the plan; worker 0 moves the tables between two steps, through
`fleetx.ps.modes.relocation`. Once the new layout is in effect, the old servers and their files are
no longer needed.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleetx.launch.console import log
from fleetx.launch.group import Group, ProcessSpec
from fleetx.launch.job_layout import Cluster
from fleetx.launch.launch_errors import LaunchError
from fleetx.launch.link import Link
from fleetx.launch.move_planning import Invitation, MovePlanning, offer
from fleetx.launch.records import INVALID, checked
from fleetx.launch.server_processes import ServerProcesses
from fleetx.runtime.layout_folder import LayoutFolder, ServerLayout
from fleetx.runtime.server_support import STATE


class ServerMoves:
    """The servers of a job on this machine, and those that take over from them."""

    def __init__(self, processes: ServerProcesses, cluster: Cluster, link: Link) -> None:
        assert processes.state is not None
        self._processes, self._cluster, self._link = processes, cluster, link
        self._files = LayoutFolder(processes.state)
        self._planning = MovePlanning(self._files, cluster) if link.is_first else None
        self._offered: tuple[str, ...] = ()
        self._now: list[ProcessSpec] = []
        self._next: list[ProcessSpec] = []
        self._taking: ServerLayout | None = None
        """The layout whose servers are taking over."""
        self._retired: list[ProcessSpec] = []
        self._told = ""

    def prepare(self) -> None:
        """Write the layout of the servers, on the first machine; raise LaunchError if the folder
        has the state of others.
        """
        cluster, files = self._cluster, self._files
        servers = tuple(cluster.servers)
        known = files.read()
        if self._planning is None:
            return
        if known is not None and len(known.endpoints) != len(servers):
            raise LaunchError(
                f"--server_num gives {len(servers)} server(s), but {files.path} holds the tables "
                f"of {len(known.endpoints)}: start the job with as many, and change the number "
                "with `fleetx ps resize` while it trains."
            )
        layout = known or ServerLayout(0, servers, len(servers))
        files.remove_before(layout.generation)
        files.write(replace(layout, endpoints=servers, workers=len(cluster.endpoints)))

    def begin(self, specs: Sequence[ProcessSpec]) -> None:
        """Register the initial servers."""
        self._now = [spec for spec in specs if spec.role == "server"]

    def poll(self, group: Group) -> None:
        """Start a requested move, or finish one that has happened."""
        self._end_if_moved(group)
        for machine, note in self._link.notes():
            try:
                self._hear(machine, note, group)
            except INVALID as error:
                host = self._cluster.nodes[machine].host
                log.warning("%s sent an invalid note about servers: %r", host, error)
        if self._planning is not None:
            self._lead(self._planning, group)
        if self._retired and group.is_over(self._retired):
            self._forget()

    def _lead(self, planning: MovePlanning, group: Group) -> None:
        if self._taking is None and not self._retired:
            invitation = planning.invite()
            if invitation is not None:
                self._link.tell(invitation.to_note())
                planning.hear(0, self._offer(invitation))
        layout = planning.layout()
        if layout is not None:
            self._link.tell({"type": "start", **vars(layout), "endpoints": [*layout.endpoints]})
            self._start(layout, group)
        planning.publish()

    def _hear(self, machine: int, note: dict[str, Any], group: Group) -> None:
        match note.get("type"), self._planning:
            case "invite", None:
                self._link.tell(self._offer(Invitation.from_note(note)))
            case "start", None:
                self._start(self._layout_of(note), group)
            case "offer", MovePlanning() as planning:
                planning.hear(machine, note)
            case _:
                raise ValueError(f"{note!r:.200} is no note about servers")

    def _offer(self, invitation: Invitation) -> dict[str, Any]:
        answer = offer(invitation, self._files, self._cluster)
        self._offered = tuple(answer["endpoints"])
        return answer

    def _layout_of(self, note: dict[str, Any]) -> ServerLayout:
        kinds = {"type": str, "generation": int, "endpoints": tuple, "cut": int, "workers": int}
        found = checked(note, kinds)
        del found["type"]
        layout = ServerLayout.from_json(found)
        now = self._files.read()
        if now is None or layout.generation != now.generation + 1 or self._taking is not None:
            raise ValueError(f"layout {layout.generation} does not follow {now}")
        if not set(self._offered) <= set(layout.endpoints):
            raise ValueError(f"{self._offered} were offered, but {layout.endpoints} are to start")
        return layout

    def _start(self, layout: ServerLayout, group: Group) -> None:
        here, count = self._offered, len(layout.endpoints)
        where = "" if len(here) == count else f", {len(here)} of them here,"
        log.info("%d server(s)%s start to take over the tables.", count, where)
        self._taking = layout
        self._next = self._processes.successors(self._cluster, layout, here)
        group.add(self._next)

    def _end_if_moved(self, group: Group) -> None:
        if self._taking is None or self._generation() < self._taking.generation:
            return
        group.retire(self._now)
        if self._planning is not None:
            self._files.drop_plan()
        log.info("The tables are on %d server(s) now.", len(self._taking.endpoints))
        self._retired += self._now
        self._now, self._next, self._taking, self._offered = self._next, [], None, ()

    def _generation(self) -> int:
        """Return the number of moves so far; -1 while it cannot be read."""
        try:
            now = self._files.read()
        except (OSError, ValueError) as error:
            if self._told != str(error):
                self._told = str(error)
                log.warning("It is unknown whether tables have moved: %s", error)
            return -1
        return -1 if now is None else now.generation

    def forget(self) -> None:
        """Remove all files of a finished job; other machines may be doing the same."""
        for spec in (*self._now, *self._retired):
            self._files.forget(Path(spec.environment[STATE]))
        if self._planning is not None:
            self._files.remove()

    def _forget(self) -> None:
        """Remove the files of the servers before this layout."""
        for spec in self._retired:
            self._files.forget(Path(spec.environment[STATE]))
        if self._planning is not None:
            shutil.rmtree(self._files.handover(self._generation()), ignore_errors=True)
        self._retired = []


def readable(action: Callable[[], None]) -> None:
    """Run what reads files of a job; raise LaunchError for one that is damaged."""
    try:
        action()
    except ValueError as error:
        raise LaunchError(
            f"--server_state cannot be used: {error} Without plan.json and request.json the tables "
            "stay where they are; layout.json says where that is, and is needed."
        ) from error
