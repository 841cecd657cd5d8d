"""The process that starts this machine's workers, monitors them, and stops them together.

    rendezvous -> start the group -> monitor -> stop the group -> restart, or report

Signal handlers only set a flag; every wait is short and checks it.
"""

from __future__ import annotations

import shutil
import signal
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import FrameType

from fleetx.launch import console, cpu_affinity, full_disk, stacks
from fleetx.launch.banner import endpoints_file, environment_table
from fleetx.launch.child_environment import TABLE, worker_environment
from fleetx.launch.console import block, log
from fleetx.launch.elastic import Elastic, ElasticGroup
from fleetx.launch.elastic_servers import ElasticServerGroup
from fleetx.launch.failure import Failure
from fleetx.launch.forking import WarmParent, is_python, uses_torch
from fleetx.launch.group import Group, ProcessSpec
from fleetx.launch.guard import STOP_SIGNALS
from fleetx.launch.hang_detection import Idle, Progress
from fleetx.launch.job_layout import Cluster
from fleetx.launch.job_plan import JobPlan
from fleetx.launch.kept_memory import KeptMemory
from fleetx.launch.launch_errors import LaunchError, StopRequest
from fleetx.launch.link import Link, Verdict
from fleetx.launch.output import Follower
from fleetx.launch.processes import descendants
from fleetx.launch.server_moves import ServerMoves, readable
from fleetx.launch.server_processes import TABLE as SERVER_TABLE
from fleetx.launch.server_processes import ServerProcesses
from fleetx.runtime.layout_folder import LayoutFolder
from fleetx.runtime.server_support import STATE

_POLL = 0.05
# After a failure the other processes must be gone within 5 s; on a requested stop, workers get
# time to save their state.
_GRACE_AFTER_FAILURE = 3.0
_GRACE_WHEN_ASKED = 8.0
_GRACE_FOR_LEFTOVERS = 1.0
# Servers need about a second after the end to make sure that all workers know.
_GRACE_FOR_SERVERS = 3.0


class Supervisor:
    """Runs one job on this machine."""

    def __init__(self, job: JobPlan, open_link: Callable[[], Link]) -> None:
        """`open_link` creates the link in the supervisor's process, which owns its sockets."""
        self._job, self._open_link = job, open_link
        self._asked: list[int] = []
        self._link: Link | None = None
        self._memory = KeptMemory()

    def run(self) -> int:
        """Run the job until it ends and return the exit code."""
        self._take_signals()
        try:
            self._link = self._open_link()
            return self._attempts(self._link)
        except LaunchError as error:
            print(f"fleetrun: {error}", file=sys.stderr)
            return error.code
        except StopRequest as request:
            return 128 + request.signum
        except OSError as error:
            if not full_disk.is_full(error):
                raise
            place = f"a file in {self._job.options.log_dir} (--log_dir) or {self._job.scratch}"
            print(f"fleetrun: {full_disk.of_error(error, place)}", file=sys.stderr)
            return 1
        finally:
            if self._link is not None:
                self._link.close()
            shutil.rmtree(self._job.scratch, ignore_errors=True)

    def _take_signals(self) -> None:
        def remember(signum: int, frame: FrameType | None) -> None:
            self._asked.append(signum)

        for signum in STOP_SIGNALS:
            if signal.getsignal(signum) != signal.SIG_IGN:
                signal.signal(signum, remember)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)

    def _check(self) -> None:
        if self._asked:
            raise StopRequest(self._asked[0])

    def _attempts(self, link: Link) -> int:
        limit = self._job.options.max_restart
        for attempt in count():
            self._interrupt_moves(link)
            cluster = link.meet(attempt, self._check)
            verdict = self._attempt(cluster, link, attempt)
            if verdict is None:
                log.info("All workers of this machine have completed.")
                return 0
            if not verdict.again:
                return verdict.failure.code
            if verdict.rejoins:
                log.warning("This machine rejoins the job.")
            else:
                log.warning("Restarting all workers: restart %d of %d.", attempt + 1, limit)
        raise AssertionError("count() has no end")

    def _attempt(self, cluster: Cluster, link: Link, attempt: int) -> Verdict | None:
        elastic = link.elastic
        moves = self._open_moves(cluster, link)
        specs = self._specs(cluster, attempt)
        if self._job.options.max_restart:
            specs = self._memory.lend(specs)
        if elastic is not None:
            specs = elastic.change(specs)
        # Fleet truncates the logs of server jobs at the start.
        if attempt == 0 and (self._job.options.log_overwrite or cluster.servers):
            for spec in specs:
                spec.log.write_bytes(b"")
        self._announce(cluster, specs)
        parent = self._warm_parent(specs, attempt) if len(cluster.nodes) == 1 else None
        group = self._group(specs, cluster, elastic, parent)
        follower = self._follow(group)
        watch = _Watch(group, link, follower, self._job.options.hang_timeout, moves)
        try:
            if moves is not None:
                moves.begin(specs)
            verdict = watch.until_end(self._asked, cluster.here.host)
            if verdict is not None and verdict.failure.kind == "hang":
                self._show_stacks(group, link)
        finally:
            if parent is not None:
                parent.close()
            self._stop(group)
            follower.finish()
        if verdict is not None:
            log.error(verdict.failure.text())
        else:
            _forget_state([worker.spec for worker in group.workers])
            if moves is not None:
                moves.forget()
        return verdict

    def _group(
        self,
        specs: list[ProcessSpec],
        cluster: Cluster,
        elastic: Elastic | None,
        parent: WarmParent | None,
    ) -> Group:
        if elastic is not None:
            return ElasticGroup(specs, cluster.here.host, elastic, parent)
        if self._job.options.elastic:
            return ElasticServerGroup(specs, cluster.here.host, parent)
        return Group(specs, cluster.here.host, parent)

    def _warm_parent(self, specs: list[ProcessSpec], attempt: int) -> WarmParent | None:
        """Return the process to fork workers from, None if they are started one by one."""
        python = [spec for spec in specs if is_python(spec.command)]
        options = self._job.options
        method = options.start_method
        if method == "auto":
            is_plain = options.server_job is None and not options.elastic
            forks = is_plain and len(python) > 1 and uses_torch(options.script)
            method = "fork" if forks else "spawn"
        if method == "spawn" or not python:
            return None
        messages = self._job.scratch / f"warm_parent.{attempt}"
        parent = WarmParent(python[0].environment, messages)
        try:
            obstacle = parent.await_ready(self._check)
        except StopRequest:
            parent.close()
            raise
        if not obstacle:
            return parent
        parent.close()
        log.warning("Workers are started one by one and not forked, because %s.", obstacle)
        return None

    def _stop(self, group: Group) -> None:
        """Stop the processes that are still running, depending on the reason for the stop."""
        if self._asked:
            asked = self._asked[-1]
            signum = asked if asked in (signal.SIGINT, signal.SIGTERM) else signal.SIGTERM
            group.stop(signum, _GRACE_WHEN_ASKED, hurry=lambda: len(self._asked) > 1)
        elif self._finished and group.has_servers:
            self._end_servers(group)
        elif not group.completed:
            group.stop(signal.SIGTERM, _GRACE_AFTER_FAILURE, hurry=lambda: bool(self._asked))
        elif descendants():
            group.stop(signal.SIGTERM, _GRACE_FOR_LEFTOVERS, hurry=lambda: bool(self._asked))

    @property
    def _finished(self) -> bool:
        return self._link is not None and self._link.finished

    def _end_servers(self, group: Group) -> None:
        """Stop the servers, whether or not the workers told them to shut down."""
        log.info("all workers exit, going to finish parameter server")
        group.wait_for_servers(_GRACE_FOR_SERVERS, hurry=lambda: bool(self._asked))
        group.stop(signal.SIGTERM, _GRACE_AFTER_FAILURE, hurry=lambda: bool(self._asked))
        log.info("all parameter server are killed")

    def _specs(self, cluster: Cluster, attempt: int) -> list[ProcessSpec]:
        job = self._job
        if job.options.server_job is not None:
            return ServerProcesses(job).specs(cluster)
        options, scratch = job.options, job.scratch
        first = cluster.first_rank(cluster.this)
        cpus = cpu_affinity.choose(options.cpu_affinity, len(job.devices.shares))
        specs = []
        for local_rank in range(len(job.devices.shares)):
            spec = ProcessSpec(
                rank=first + local_rank,
                command=job.command,
                environment=worker_environment(job, cluster, local_rank, attempt),
                log=Path(options.log_dir, f"workerlog.{local_rank}"),
                heartbeat=scratch / f"heartbeat.{local_rank}",
                cpus=cpus[local_rank],
            )
            specs.append(spec.traced_to(scratch / f"stacks.{local_rank}.{attempt}"))
        return specs

    def _interrupt_moves(self, link: Link) -> None:
        """Withdraw a plan of an earlier launcher, before workers of any machine can read it."""
        job = self._job
        if job.options.server_job is not None and job.state is not None and link.is_first:
            readable(LayoutFolder(job.state).interrupt)

    def _open_moves(self, cluster: Cluster, link: Link) -> ServerMoves | None:
        """Return the object that moves tables between servers, if these keep their state."""
        if self._job.options.server_job is None or self._job.state is None:
            return None
        moves = ServerMoves(ServerProcesses(self._job), cluster, link)
        readable(moves.prepare)
        return moves

    def _announce(self, cluster: Cluster, specs: list[ProcessSpec]) -> None:
        folder = Path(self._job.options.log_dir)
        listed = endpoints_file(cluster.endpoints, cluster.servers)
        (folder / "endpoints.log").write_text(listed, encoding="utf-8")
        shown = _first_worker(specs)
        log.info(
            "Local start %d processes. First process distributed environment info "
            "(Only For Debug): \n%s\n",
            len(specs),
            environment_table(
                shown.environment, SERVER_TABLE if cluster.servers else TABLE, console.width()
            ),
        )
        if len(specs) > 1 and "OMP_NUM_THREADS" not in self._job.environment:
            log.info("Each process computes with one thread; set OMP_NUM_THREADS for more.")
        logs = " or ".join(dict.fromkeys(f"{spec.log.stem}.N" for spec in specs))
        log.info(
            "All endpoints are listed in %s; the output of process N of this machine is in %s.",
            folder / "endpoints.log",
            folder / logs,
        )

    def _follow(self, group: Group) -> Follower:
        everyone = self._job.options.log_all
        return Follower(
            [
                (w.spec.log, w.offset, f"[{w.spec.name}] " if everyone else "")
                for w in group.workers
                if everyone or w.spec is _first_worker([w.spec for w in group.workers])
            ]
        )

    def _show_stacks(self, group: Group, link: Link) -> None:
        text = stacks.collect(group.workers)
        for part in (text, *link.share_stacks(text)):
            block(part)


def _first_worker(specs: list[ProcessSpec]) -> ProcessSpec:
    """Return the process to show: the first that trains, or a server if there is none."""
    return next((spec for spec in specs if spec.role != "server"), specs[0])


def _forget_state(specs: list[ProcessSpec]) -> None:
    """Remove the state that servers of a finished job have kept for a restart."""
    for spec in specs:
        folder = spec.environment.get(STATE)
        if spec.role == "server" and folder:
            shutil.rmtree(folder, ignore_errors=True)


class _Watch:
    """Monitor of the workers and the link until the attempt has ended."""

    def __init__(
        self,
        group: Group,
        link: Link,
        follower: Follower,
        hang_timeout: float | None,
        moves: ServerMoves | None,
    ) -> None:
        self._group = group
        self._moves = moves
        self._link = link
        self._follower = follower
        self._progress = None if hang_timeout == 0 else Progress(group.workers, hang_timeout)
        self._reported = False
        self._completed = False

    def until_end(self, asked: list[int], host: str) -> Verdict | None:
        """Return the outcome, or None once the whole job has finished."""
        while True:
            self._group.poll()
            if self._moves is not None:
                self._moves.poll(self._group)
            if self._follower.broken.is_set() and not asked:
                asked.append(signal.SIGPIPE)  # as for any program whose reader has exited
            if asked:
                return self._stop_request(asked[0], host)
            self._report_failure()
            verdict = self._link.poll(self._progress.idle() if self._progress else Idle())
            if verdict is not None:
                return verdict
            if self._group.completed:
                self._complete()
                if self._link.finished:
                    return None
            time.sleep(_POLL)

    def _complete(self) -> None:
        if not self._completed:
            self._completed = True
            self._link.complete()
            if not self._link.finished and self._group.trains:
                log.info("The workers of this machine are done; waiting for the other machines.")

    def _report_failure(self) -> None:
        failure = None if self._reported else self._group.failure()
        if failure is not None:
            self._link.report(failure)
            self._reported = True

    def _stop_request(self, signum: int, host: str) -> Verdict:
        name = signal.Signals(signum).name
        sentence = f"Stopped by {name}, which fleetrun on {host} received."
        failure = Failure(kind="asked", host=host, sentence=sentence, code=128 + signum)
        self._link.report(failure)
        return Verdict(failure)
