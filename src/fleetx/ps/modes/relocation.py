"""A worker's part in moving all tables to another number of servers, between two steps.

The launcher starts the new servers and writes the plan (`fleetx.runtime.layout_folder`). Worker 0
announces the move to the old servers. When all workers have stopped at the end of a step, it lets
the old servers hand over, waits until the new ones have everything on disk, and replaces the
layout: that is the moment of the move. The others wait for it. A process that is killed anywhere in
between finds the same announcement, plan and layout after its restart, and completes the remaining
steps.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from fleetx.ps.server.moving import Move
from fleetx.ps.wire.messages import NO_STEP
from fleetx.runtime import heartbeat
from fleetx.runtime.layout_folder import LayoutFolder, ServerLayout, is_whole, mark_whole

if TYPE_CHECKING:
    from fleetx.ps.modes.mode import Mode

_log = logging.getLogger("fleetx.ps")
LOOK_EVERY = 0.2
"""Seconds between two checks for a plan."""
# The same while a worker waits for the end of a move.
_POLL = 0.02
# Every worker has seen an announcement before the end of the step after the next commit.
_STEPS_AHEAD = 2


class Relocation:
    """A worker's part in a move of tables."""

    def __init__(self, mode: Mode, folder: LayoutFolder) -> None:
        self._mode, self._folder = mode, folder
        self._looked = 0.0
        self._move: Move | None = None
        if not mode.keeps_step:
            # A worker that waits for others at a barrier stops there.
            mode.client.when_moving = self.at_boundary

    def at_boundary(self) -> None:
        """Take part in a move if one is due; called between two steps."""
        client, mode = self._mode.client, self._mode
        if self._move is None:
            self._move = self._announced() if client.is_moving else None
            if client.worker == 0 and (self._move is not None or self._is_planned()):
                self._move = self._announce(self._move)
        if self._move is None or (mode.keeps_step and mode.step < self._move.step):
            return
        move, self._move = self._move, None
        with heartbeat.collective("tables that move between servers"):
            self._take_part(move.generation)

    def _is_planned(self) -> bool:
        now = time.monotonic()
        if now - self._looked < LOOK_EVERY:
            return False
        self._looked = now
        return self._plan() is not None

    def _plan(self) -> ServerLayout | None:
        plan = self._folder.read_plan()
        return plan if plan and plan.generation > self._mode.client.generation else None

    def _announced(self) -> Move | None:
        found = [Move.from_json(status["move"]) for status in self._mode.client.status()]
        return next((move for move in found if move is not None), None)

    def _announce(self, known: Move | None) -> Move:
        """Announce a move on all servers; after a restart, possibly the same move again."""
        client, mode = self._mode.client, self._mode
        if known is None:
            plan = self._plan()
            assert plan is not None
            step = mode.step + _STEPS_AHEAD if mode.keeps_step else NO_STEP
            known = Move(plan.generation, step)
        if known.step != NO_STEP:
            client.tell_move(known.generation, known.step)
        return known

    def _take_part(self, generation: int) -> None:
        mode, client = self._mode, self._mode.client
        begun = time.monotonic()
        before = client.servers
        mode.stop_for_move()
        if not mode.keeps_step:
            client.tell_move(generation, NO_STEP)
        if client.worker == 0:
            layout = self._lead(generation)
        else:
            layout = self._wait(self._folder.read, generation)  # until worker 0 has moved them
        client.switch_to(layout)
        mode.loads += 1  # prefetched rows belong to closed connections
        if client.worker == 0:
            _log.warning(
                "All tables have moved from %d to %d server(s) before step %d; workers paused for "
                "%.2f s.",
                before,
                client.servers,
                mode.step,
                time.monotonic() - begun,
            )

    def _lead(self, generation: int) -> ServerLayout:
        """Move the tables, as worker 0."""
        client, folder = self._mode.client, self._folder
        plan = self._wait(folder.read_plan, generation)
        handover = folder.handover(generation)
        if not is_whole(handover):
            client.hand_over(handover)
            mark_whole(handover, client.servers)
        client.meet(plan)
        folder.write(plan)
        return plan

    def _wait(self, read: Callable[[], ServerLayout | None], generation: int) -> ServerLayout:
        pause = threading.Event()
        while True:
            found = read()
            if found is not None and found.generation >= generation:
                return found
            self._mode.client.check()
            heartbeat.show_life()
            pause.wait(_POLL)
