"""The first machine of an elastic job: it runs the coordinator and decides when the job ends.

Other machines can join and leave; only this one has to stay. A job on one machine is the same
without the others.
"""

from __future__ import annotations

import secrets
import socket
import time

from fleetx.launch.arguments import Options
from fleetx.launch.devices import Devices
from fleetx.launch.elastic import Elastic
from fleetx.launch.elastic_coordinator import Coordinator
from fleetx.launch.elastic_machines import Machines
from fleetx.launch.elastic_membership import Membership
from fleetx.launch.failure import Failure, first
from fleetx.launch.hang_detection import Idle, hang_of
from fleetx.launch.job_layout import Cluster, Site, alone, own_node
from fleetx.launch.link import Check, Link, Rules, Verdict
from fleetx.launch.meeting import Notices, Ticket
from fleetx.runtime import network
from fleetx.runtime.elastic_environment import ElasticPlace


class ElasticRoot(Link):
    """The link of the first machine, or of the only one."""

    def __init__(
        self, options: Options, site: Site, devices: Devices, rules: Rules, ticket: Ticket
    ) -> None:
        super().__init__(site, devices, rules)
        self._options = options
        self._ticket = ticket
        self._listener: socket.socket | None = None
        self._coordinator: Coordinator | None = None
        self._notices = Notices()
        self._done_here = self._has_left = False
        self._short_since: float | None = None
        if site.meeting is not None:
            host, port = site.meeting
            # A name that does not resolve yet is awaited in meet().
            self._listener = network.listen(host if network.resolve(host) else "", port)

    def meet(self, attempt: int, check: Check) -> Cluster:
        """Start with this machine; its workers wait for those of the others."""
        cluster = self._first_cluster(check)
        secret = self.rules.secret if self.site.meeting else secrets.token_bytes(32)
        listener = self._listener or network.listen(*cluster.master)
        self._listener = None
        options, workers = self._options, len(cluster.endpoints)
        self._coordinator = Coordinator(
            listener,
            secret,
            options.elastic_timeout,
            Membership(options.least_nodes * workers, options.least_nodes, per_machine=workers),
            Machines(self._ticket, cluster.here, options.nnodes),
        )
        place = ElasticPlace(cluster.master, secret, options.elastic_timeout)
        coordinator = self._coordinator
        self.elastic = Elastic(place, options.max_restart, lambda: coordinator.state)
        return cluster

    def _first_cluster(self, check: Check) -> Cluster:
        if self.site.meeting is None:
            return alone(self.site, self.devices)
        host = self.own_host(time.monotonic() + self.rules.rdzv_timeout, check)
        node = own_node(self.site, host, self.devices)
        return Cluster(nodes=(node,), this=0, master=self._meeting)

    def report(self, failure: Failure) -> None:
        """Record the end of the job; the end of this machine's workers alone does not end it."""
        self._has_left = failure.kind == "left"
        if not self._has_left:
            super().report(failure)
            if failure.kind == "asked":
                self._tell_to_stop(failure)

    def complete(self) -> None:
        """Record that this machine's workers have succeeded."""
        self._done_here = True

    def poll(self, idle: Idle) -> Verdict | None:
        """Return the outcome if the job must stop."""
        assert self._coordinator is not None
        machines = self._coordinator.machines
        self._failures += machines.failures
        if self._has_left and self._coordinator.state.problem:
            self._failures.append(self._failure(self._coordinator.state.problem))
        unfinished = machines.unfinished
        if self._done_here and not unfinished and not self._failures:
            self.finished = True
            self._coordinator.announce({"type": "finished"})
            return None
        if not self._is_short() and not self._failures:
            others = [machine.idle for machine in unfinished]
            known = others if self._done_here else [idle, *others]
            hang = hang_of(known, self.rules.hang_timeout, self.site.host or "")
            self._failures += [] if hang is None else [hang]
        if not self._failures:
            return None
        failure = first(self._failures)
        self._tell_to_stop(failure)
        return Verdict(failure)

    def _is_short(self) -> bool:
        """Return whether training waits for machines; give up if it never began."""
        assert self._coordinator is not None
        state, machines = self._coordinator.state, self._coordinator.machines
        least = self._options.least_nodes
        if least == 1 or state.is_ending:
            return False
        if machines.count >= least:
            self._short_since, self._notices = None, Notices()
            return state.machines < least
        now = time.monotonic()
        self._short_since = self._short_since or now
        joined = ", ".join(machines.hosts)
        wanted = f"{least} machines (--nnodes {self._options.nodes_text}; joined: {joined})"
        self._notices.say(f"Training waits at {self._where()} for {wanted}.")
        limit = self.rules.rdzv_timeout
        if now - self._short_since > limit and not state.is_training:
            self._failures.append(
                self._failure(
                    f"After {limit:g} s (--rdzv_timeout) there are not {wanted}: start fleetrun on "
                    f"more machines, or look for what keeps them from {self._where()}."
                )
            )
        return True

    def _failure(self, sentence: str) -> Failure:
        assert self._coordinator is not None
        return Failure("lost", self._coordinator.machines.hosts[0], sentence, code=1)

    def _tell_to_stop(self, failure: Failure) -> None:
        assert self._coordinator is not None
        stop = {"type": "stop", "failure": failure.to_json(), "again": False}
        self._coordinator.announce(stop)

    def close(self) -> None:
        """Stop the coordinator."""
        if self._listener is not None:
            self._listener.close()
        if self._coordinator is not None:
            self._coordinator.close()
