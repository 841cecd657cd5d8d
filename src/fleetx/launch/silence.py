"""Detection of machines that no longer respond. In most jobs they are lost at once, but servers may
be unreachable for as long as workers wait for them.
"""

from __future__ import annotations

import time

from fleetx.launch.console import log
from fleetx.launch.failure import Failure
from fleetx.launch.job_layout import Cluster
from fleetx.runtime.wire import Line

LOST_AFTER = 7.0
"""Default seconds of silence after which a machine is lost."""


class Silence:
    """Detects machines that are silent or gone."""

    def __init__(self, lost_after: float) -> None:
        self._lost_after = lost_after
        self._silent: set[int] = set()

    def loss_of(self, line: Line, cluster: Cluster, node: int) -> Failure | None:
        """Return the failure of a machine that no longer responds; None if it does."""
        silent = time.monotonic() - line.last_heard
        host = cluster.nodes[node].host
        if line.closed:
            how = "its fleetrun disappeared (killed, or the machine restarted)"
        elif silent > self._lost_after:
            how = f"silent for {silent:.0f} s: the network is cut or the machine is down"
        else:
            self._tell(host, node, silent > LOST_AFTER)
            return None
        sentence = f"Machine {host} ({cluster.ranks(node)}) was lost: {how}."
        return Failure(kind="lost", host=host, sentence=sentence, code=1)

    def _tell(self, host: str, node: int, is_silent: bool) -> None:
        if is_silent and node not in self._silent:
            self._silent.add(node)
            log.warning(
                "Machine %s is silent: waiting for it up to %g s (--server_wait).",
                host,
                self._lost_after,
            )
        elif not is_silent and node in self._silent:
            self._silent.remove(node)
            log.warning("Machine %s responds again.", host)
