"""A further machine of an elastic job: it can join at any time, and rejoins if it was cut off."""

from __future__ import annotations

import time
from dataclasses import replace

from fleetx.launch.arguments import Options
from fleetx.launch.devices import Devices
from fleetx.launch.elastic import Elastic
from fleetx.launch.elastic_membership import JobState
from fleetx.launch.failure import Failure
from fleetx.launch.job_layout import Cluster, Site
from fleetx.launch.link import Check, Rules, Verdict
from fleetx.launch.meeting import Ticket
from fleetx.launch.member import Member
from fleetx.runtime.elastic_environment import ElasticPlace
from fleetx.runtime.wire import Message

# A machine that is cut off stops its workers before they notice it themselves and are replaced.
_EARLIER = 0.8


class ElasticMember(Member):
    """The link of a machine that is not the first."""

    def __init__(
        self, options: Options, site: Site, devices: Devices, rules: Rules, ticket: Ticket
    ) -> None:
        super().__init__(site, devices, rules, ticket)
        self._timeout = options.elastic_timeout
        self._restarts = options.max_restart
        self._state = JobState()
        self._is_done = False

    def meet(self, attempt: int, check: Check) -> Cluster:
        """Join or rejoin the job: the first machine assigns an index."""
        self.close()
        self._line = None
        self._state, self._is_done = JobState(), False
        # The name from the flags: if it reaches the first machine, workers do so too.
        self._cluster = cluster = replace(super().meet(0, check), master=self._meeting)
        place = ElasticPlace(self._meeting, self.rules.secret, self._timeout)
        self.elastic = Elastic(place, self._restarts, lambda: self._state)
        return cluster

    def report(self, failure: Failure) -> None:
        """Leave the job if only this machine ends; otherwise report its failure."""
        if failure.kind in ("asked", "left"):
            self._send({"type": "leave"})
            self._verdict = Verdict(failure)
        else:
            super().report(failure)

    def complete(self) -> None:
        """Report that this machine's workers have succeeded."""
        self._is_done = True
        super().complete()

    def _hear(self, message: Message) -> None:
        if message["type"] == "state":
            self._state = JobState.from_json(message["state"])
        else:
            super()._hear(message)

    def _notice_loss(self) -> None:
        """Join again if the first machine is out of reach; it may be there for the others."""
        assert self._line is not None
        assert self._cluster is not None
        silent = time.monotonic() - self._line.last_heard
        if self._line.closed and self._is_done:
            self.finished = True
        elif self._line.closed or silent > _EARLIER * self._timeout:
            how = f"is silent for {silent:.0f} s"
            if self._line.closed:
                how = "has closed the connection"
            sentence = f"The first machine, {self._where()}, {how}: the workers here are ended."
            failure = Failure("lost", self._cluster.here.host, sentence, code=1)
            self._verdict = Verdict(failure, again=True, rejoins=True)
