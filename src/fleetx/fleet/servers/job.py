"""A session's part in a job with parameter servers.

The session delegates to it if the role says so: servers serve, workers connect, and tables are
saved and loaded. How a step trains with servers is the technique `parameter_server`, which is given
a `TrainingServers`; programs are rewritten here for it. Programs and modules have one client.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fleetx.fleet.roles.role_maker import RoleMakerBase
from fleetx.fleet.roles.worker_group import WorkerGroup
from fleetx.fleet.servers.local_rows import OnePair
from fleetx.fleet.servers.program_link import ServerLink
from fleetx.fleet.servers.program_tables import ProgramTables, find_tables
from fleetx.fleet.servers.worker_program import server_programs, write_worker
from fleetx.kernels import native
from fleetx.ps.client.client import Client, ClientSettings
from fleetx.ps.modes.mode import Mode
from fleetx.ps.modes.server_mode import ServerMode
from fleetx.ps.server.server import run_server
from fleetx.ps.server.server_settings import ServerSettings
from fleetx.ps.server.snapshots import Durability
from fleetx.ps.tables.table_files import SERVERS
from fleetx.ps.wire.security import JobKeys, is_loopback, make_keys
from fleetx.runtime.layout_folder import LayoutFolder, ServerLayout
from fleetx.runtime.server_support import users_keys
from fleetx.static.graph.program import Program
from fleetx.static.run.server_link import Servers
from fleetx.step.program_step import WrittenUpdate
from fleetx.techniques.parameter_server import server_mode

_log = logging.getLogger("fleetx.fleet")


def _same(link: ServerLink) -> Servers:
    return link


def is_server_job(role: RoleMakerBase) -> bool:
    """Return whether a role belongs to a job with parameter servers."""
    return not role.is_collective and not role.is_non_distributed() and role.server_num() > 0


@dataclass(frozen=True)
class TrainingServers:
    """The servers of a job as techniques see them, by a strategy: a `step.servers.JobServers`."""

    job: ServerJob
    strategy: Any
    link: Callable[[ServerLink], Servers] | None = None
    """For changed copies of programs: returns the link of their ops, given that of the original
    programs.
    """

    @cached_property
    def mode(self) -> ServerMode:
        """The training mode of the workers."""
        return server_mode(self.strategy)

    @property
    def count(self) -> int:
        """The number of servers."""
        return self.job.count

    def client(self) -> Client:
        """Return the connection to all servers."""
        return self.job.client()

    def begin(self, mode: Mode) -> None:
        """Register the exchange of a model, for saving and stopping."""
        self.job.take_mode(mode)

    def gather(self, value: float) -> list[float]:
        """Return the numbers of all workers in synchronous training, otherwise this one's."""
        if self.mode.kind != "sync":
            return [value]
        notes = self.job.client().gather({"action": "a step", "value": value})
        return [notes[worker]["value"] for worker in sorted(notes)]

    def write_programs(self, written: WrittenUpdate) -> ProgramTables:
        """Rewrite programs with updates for the role of this process."""
        if self.link is not None:
            return self.job.write_again(written, self.mode, self.link)
        return self.job.write_programs(written, self.mode)


class ServerJob:
    """One process of a job with parameter servers."""

    def __init__(self, role: RoleMakerBase) -> None:
        self._role = role
        role.meet_workers_by(lambda: WorkerGroup(self.client(), role.server_endpoints()[0]))
        self._support = role.server_support()
        self._client: Client | None = None
        self._is_ready = False  # whether init_worker was called
        self._link: ServerLink | None = None
        self._load_from: str | None = None
        self._model_mode: Mode | None = None
        self.rows = OnePair()

    @property
    def count(self) -> int:
        """The number of servers."""
        return self._role.server_num() if self._client is None else self._client.servers

    def _layout(self) -> ServerLayout | None:
        """Return the current addresses of the servers, if a launcher records them."""
        return LayoutFolder(self._support.layout).read() if self._support.layout else None

    def _cut(self) -> int:
        """Return the number of servers for which parameters are split into blocks."""
        found = self._layout()
        return found.cut if found is not None else self._role.server_num()

    def resize(self, servers: int) -> None:
        """Ask the launcher for another number of servers; the first worker's call counts."""
        if not self._role.is_worker():
            raise RuntimeError(
                "fleet.resize_servers() is for workers: check fleet.is_worker() first."
            )
        if self._support.layout is None:
            raise RuntimeError(
                f"fleet.resize_servers({servers}): servers can only be added and removed by "
                "fleetrun, and if they keep their state: start the job with fleetrun, without "
                "--max_server_restart 0 or with --server_state."
            )
        if self._role.is_first_worker():
            LayoutFolder(self._support.layout).ask_for(servers)

    # -- programs ---------------------------------------------------------------------
    def write_programs(self, written: WrittenUpdate, mode: ServerMode) -> ProgramTables:
        """Rewrite a program with updates for the role of this process."""
        role, main, startup = self._role, written.main, written.startup
        endpoints = role.server_endpoints()
        tables = find_tables(written, main.binding.updated_by, mode, self._cut())
        if role.is_server():
            self.write_server(main, startup)
        else:
            write_worker(written, tables, mode, endpoints, worker=role.worker_index())
            self._link = ServerLink(mode, tables)
            main.binding.servers = startup.binding.servers = self._link
            if self._is_ready:
                self._link.join(self.client)
        return tables

    def write_again(
        self,
        written: WrittenUpdate,
        mode: ServerMode,
        link: Callable[[ServerLink], Servers] = _same,
    ) -> ProgramTables:
        """Rewrite a changed copy of the program that `write_programs` was given; both have the same
        tables. `link` returns what the copy talks to, given the link of the first program."""
        endpoints = self._role.server_endpoints()
        tables = find_tables(written, written.main.binding.updated_by, mode, self._cut())
        write_worker(written, tables, mode, endpoints, worker=self._role.worker_index())
        assert self._link is not None
        written.main.binding.servers = written.startup.binding.servers = link(self._link)
        return tables

    def write_server(self, main: Program, startup: Program) -> None:
        """Turn programs into those of a server."""
        role = self._role
        index = role.server_index()
        endpoint = role.server_endpoints()[index]
        own, empty = server_programs(endpoint, index, role.worker_num())
        own.binding.servers = ServerLink(ServerMode(), ProgramTables(), self.run_server)
        main.take_over(own)
        startup.take_over(empty)

    # -- servers ----------------------------------------------------------------------
    def init_server(
        self, dirname: str | os.PathLike[str] | None = None, *_: Any, **__: Any
    ) -> None:
        """Store the folder from which tables load their values."""
        self._require_server("init_server")
        if dirname is None:
            return
        if not os.path.isdir(dirname):
            raise ValueError(f"There is no directory named '{dirname}'.")
        self._load_from = os.path.abspath(dirname)

    def run_server(self) -> None:
        """Serve until all workers have finished."""
        self._require_server("run_server")
        self._say_if_slower()
        role, support = self._role, self._support
        durability = None
        if support.state_folder is not None:
            durability = Durability(
                folder=support.state_folder,
                fsync=support.fsync,  # type: ignore[arg-type]  # checked where it was read
                snapshot_seconds=support.snapshot_seconds,
            )
        more: dict[str, Any] = (
            {} if support.worker_wait is None else {"worker_wait": support.worker_wait}
        )
        index = role.server_index()
        settings = ServerSettings(
            workers=role.worker_num(),
            index=index,
            servers=role.server_num(),
            keys=self._keys(),
            allow_insecure=support.allow_insecure,
            durability=durability,
            memory=support.memory,
            spill=support.spill or support.state_folder,
            take_over=support.take_over,
            elastic=support.elastic,
            load_from=self._load_from,
            **more,
        )
        run_server(role.server_endpoints()[index], settings)

    @staticmethod
    def _say_if_slower() -> None:
        """Log on servers and the first worker if Python fallbacks are in use."""
        if slower := native.slower_because():
            _log.warning("%s", slower)

    def _keys(self) -> JobKeys | None:
        support = self._support
        if support.keys is not None:
            return JobKeys.from_dict(support.keys)
        if support.allow_insecure or not all(map(is_loopback, self._role.server_endpoints())):
            return None
        # No launcher has made keys, and the job is within this machine: those of this user.
        return JobKeys.from_dict(users_keys(make_keys().to_dict()))

    def _require_server(self, name: str) -> None:
        if not self._role.is_server():
            raise RuntimeError(f"fleet.{name}() is for servers: check fleet.is_server() first.")

    # -- workers ----------------------------------------------------------------------
    def init_worker(self, *, at_once: bool = True) -> None:
        """Connect to the servers; if not `at_once`, when a program first needs them."""
        if not self._role.is_worker():
            raise RuntimeError("fleet.init_worker() is for workers: check fleet.is_worker() first.")
        if self._is_ready:
            _log.warning("fleet.init_worker() was called already; this call has no effect.")
            return
        self._is_ready = True
        if self._link is None:
            self.client()
        else:
            self._link.join(self.client, at_once=at_once)

    def client(self) -> Client:
        """Return the connection to all servers, made when it is first needed."""
        if self._client is None:
            role = self._role
            if role.is_first_worker():
                self._say_if_slower()
            keys, wait = self._keys(), self._support.server_wait
            settings = ClientSettings(
                keys=None if keys is None else keys.for_workers(), layout=self._support.layout
            )
            self._client = Client(
                role.server_endpoints(),
                worker=role.worker_index(),
                workers=role.worker_num(),
                settings=settings if wait is None else replace(settings, server_wait=wait),
            )
        return self._client

    def stop_worker(self) -> None:
        """Send queued gradients and disconnect; servers shut down after the last worker has done
        so.
        """
        mode = self._any_mode()
        if mode is not None:
            mode.stop()
        elif self._client is not None:
            self._client.finish()
        if self._link is not None:
            self._link.leave()
        self._client, self._is_ready = None, False

    def _any_mode(self) -> Mode | None:
        if self._link is not None and self._link.is_started:
            return self._link.mode
        return self._model_mode

    def take_mode(self, mode: Mode) -> None:
        """Register the exchange of a model."""
        self._model_mode = mode

    def barrier(self) -> None:
        """Wait for all workers."""
        self.client().barrier()

    # -- saving -----------------------------------------------------------------------
    def save_persistables(self, executor: Any, dirname: str, program: Any, programs: Any) -> None:
        """Save each parameter to its own file, and all tables with their state next to them.

        `program` is the script's argument, `programs` are the session's.
        """
        from fleetx.fleet.servers.table_saving import save_parameters

        _check_savers(executor, program)
        mode = self._any_mode()
        if mode is None:
            raise RuntimeError("there is nothing to save yet: train first.")
        if self._link is not None and self._link.is_started:
            save_parameters(executor, dirname, program or programs.main, self._link)
        mode.save(os.path.join(dirname, SERVERS))

    def load_model(self, dirname: str) -> None:
        """Load what `save_persistables` wrote into the servers, and pull the parameters.

        Only the first worker makes the servers load.
        """
        mode = self._any_mode()
        if mode is None:
            raise RuntimeError(
                "there are no tables to load into yet: call fleet.init_worker() and run the "
                "startup program, or make the model and its optimizer, first."
            )
        folder = os.path.join(dirname, SERVERS)
        if not os.path.isdir(folder):
            raise FileNotFoundError(
                f"{folder!r} is not there: fleet.load_model takes what fleet.save_persistables "
                "wrote in a job with servers."
            )
        mode.load(folder, asks_servers=self._role.is_first_worker())

    def save_tables(self, folder: str) -> None:
        """Save all tables into a folder that the servers see, as one worker."""
        mode = self._any_mode()
        if mode is None:
            raise RuntimeError("there are no tables to save yet: train first.")
        mode.save(folder)

    def load_tables(self, folder: str) -> None:
        """Load what `save_tables` wrote; all workers call it, between two steps."""
        mode = self._any_mode()
        if mode is None:
            raise RuntimeError(
                "there are no tables to load into yet: give the model to fleet.distributed_model "
                "and its optimizer to fleet.distributed_optimizer first."
            )
        if self._role.is_first_worker():
            mode.load(folder, asks_servers=True)
        self.barrier()
        if not self._role.is_first_worker():
            mode.load(folder, asks_servers=False)

    def save_inference_model(
        self,
        executor: Any,
        dirname: str,
        feeds: Sequence[str],
        targets: Any,
        program: Any,
        programs: Any,
        *,
        export_for_deployment: bool = True,
    ) -> Any:
        """Save a model with its embeddings, which runs without servers."""
        from fleetx.fleet.servers.table_saving import save_model

        _check_savers(executor, program)
        if self._link is None or programs is None:
            raise RuntimeError("there is no program to save yet: call minimize() first.")
        return save_model(
            executor,
            dirname,
            feeds,
            targets if isinstance(targets, list | tuple) else [targets],
            program or programs.origin,
            self._link,
            export_for_deployment=export_for_deployment,
        )


def _check_savers(executor: Any, program: Any) -> None:
    """Validate the arguments of a save before any request to a server."""
    from fleetx.static.run.compiled_program import CompiledProgram
    from fleetx.static.run.executor import Executor

    if executor is not None and not isinstance(executor, Executor):
        raise TypeError(
            f"executor is a {type(executor).__name__}: a job with parameter servers saves with an "
            "Executor."
        )
    if isinstance(program, CompiledProgram):
        raise TypeError("main_program is a CompiledProgram: give the program it was made from.")
