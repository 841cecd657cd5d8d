"""Elastic jobs whose first machine may be lost: etcd tells which machine is the first at present.

Every launcher looks the coordinator up; if there is none, it becomes it. If the first machine is
lost, the others look again: one of them takes its place, and all start their workers again, which
continue from their newest checkpoint.
"""

from __future__ import annotations

import contextlib
import select
import time
from dataclasses import replace

from fleetx.launch.arguments import Options
from fleetx.launch.console import log
from fleetx.launch.devices import Devices
from fleetx.launch.elastic_arguments import etcd_endpoints
from fleetx.launch.elastic_member import ElasticMember
from fleetx.launch.elastic_root import ElasticRoot
from fleetx.launch.elastic_seat import ForgedSeatError, Seat
from fleetx.launch.etcd import Etcd, EtcdError
from fleetx.launch.failure import Failure
from fleetx.launch.hang_detection import Idle
from fleetx.launch.job_layout import Cluster, Site
from fleetx.launch.launch_errors import LaunchError, NotReachedError
from fleetx.launch.link import Check, Link, Rules, Verdict
from fleetx.launch.meeting import Notices, Ticket, warn_without_secret
from fleetx.runtime import network

# Seconds for which a machine tries the address in etcd before it looks again.
_REACH_WITHIN = 2.0


class ElectedLink(Link):
    """The link of a machine that is the first one or another, as etcd has it."""

    def __init__(
        self, options: Options, site: Site, devices: Devices, rules: Rules, ticket: Ticket
    ) -> None:
        super().__init__(site, devices, rules)
        self._options = options
        self._ticket = ticket
        timeout = options.elastic_timeout
        etcd = Etcd(etcd_endpoints(options.elastic_server), min(3.0, timeout / 5))
        self._seat = Seat(etcd, options.job_id, rules.secret, timeout)
        self._inner: Link | None = None
        self._notices = Notices()

    @property
    def _leads(self) -> bool:
        return isinstance(self._inner, ElasticRoot)

    @property
    def _now(self) -> Link:
        assert self._inner is not None
        return self._inner

    # ---- rendezvous

    def meet(self, attempt: int, check: Check) -> Cluster:
        """Find the first machine, or become it."""
        self.close()
        self._notices = Notices()
        deadline = time.monotonic() + self.rules.rdzv_timeout
        while True:
            check()
            problem = "no machine has become the first one"
            try:
                if (cluster := self._try(check)) is not None:
                    self.elastic = self._now.elastic
                    return cluster
            except EtcdError as error:
                problem = f"etcd does not answer ({error})"
            except ForgedSeatError as error:
                raise LaunchError(self._about(str(error)), 1) from None
            except NotReachedError:
                problem = "the first machine is not reached; its entry ends if it is lost"
            if time.monotonic() >= deadline:
                limit = f"{self.rules.rdzv_timeout:g} s (--rdzv_timeout)"
                raise LaunchError(self._about(f"{problem}, after {limit}"), 1)
            self._notices.say(f"Waiting: {problem}.")
            select.select([], [], [], 0.2)

    def _about(self, problem: str) -> str:
        return f"--elastic_server {self._options.elastic_server}: {problem}."

    def _try(self, check: Check) -> Cluster | None:
        address = self._seat.holder()
        return self._lead(check) if address is None else self._follow(address, check)

    def _lead(self, check: Check) -> Cluster | None:
        """Become the first machine; return None if another was faster."""
        host = self.site.host
        assert host is not None
        (port,) = network.free_ports(1, host)
        site = replace(self.site, meeting=(host, port))
        root = ElasticRoot(self._options, site, self.devices, self.rules, self._ticket)
        taken = False
        try:
            taken = self._seat.take(host, port)
        finally:
            if not taken:
                root.close()
        if not taken:
            return None
        self._inner = root
        log.info("This machine is the first one of the job (%s:%d in etcd).", host, port)
        warn_without_secret(self.rules.secret, (host, port))
        return root.meet(0, check)

    def _follow(self, address: tuple[str, int], check: Check) -> Cluster:
        site = replace(self.site, meeting=address)
        rules = replace(self.rules, rdzv_timeout=_REACH_WITHIN)
        self._inner = ElasticMember(self._options, site, self.devices, rules, self._ticket)
        return self._inner.meet(0, check)

    # ---- while the workers run

    def report(self, failure: Failure) -> None:
        """Report a failure; the first machine too may leave a job that goes on."""
        if not (self._leads and failure.kind == "asked"):
            self._now.report(failure)

    def complete(self) -> None:
        """Report that all workers of this machine have succeeded."""
        self._now.complete()
        self.finished = self._now.finished

    def poll(self, idle: Idle) -> Verdict | None:
        """Return the verdict if the job must stop, or begin again with another first machine."""
        if self._leads and not self.finished and self._seat.is_lost:
            sentence = self._about(
                "this machine could not renew its entry in time, so another may be the first one; "
                "the workers here are ended"
            )
            failure = Failure("lost", self.site.host or "", sentence, code=1)
            return Verdict(failure, again=True, rejoins=True)
        verdict = self._now.poll(idle)
        self.finished = self._now.finished
        return verdict

    def share_stacks(self, text: str) -> list[str]:
        """Send the stacks of this machine's ranks to the first machine; return the others'."""
        return self._now.share_stacks(text)

    def close(self) -> None:
        """Close the link, and leave the seat to others."""
        self._seat.leave()
        if self._inner is not None:
            with contextlib.suppress(OSError):  # the other side may have gone
                self._inner.close()
            self._inner = None
