"""A session's part in a job with parameter servers.

The session hands over to it when the role says so: programs are rewritten for workers, servers
serve, and models of PyTorch train with tables on servers. Both kinds of workers have one client and
one mode; see `server_link` for programs and `server_model` for modules.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from fleetx.fleet.collective.observing import observe_server_program
from fleetx.fleet.roles.role_maker import RoleMakerBase
from fleetx.fleet.roles.worker_group import WorkerGroup
from fleetx.fleet.servers.program_link import ServerLink
from fleetx.fleet.servers.program_tables import ProgramTables, find_tables
from fleetx.fleet.servers.served_model import EagerServers
from fleetx.fleet.servers.training_mode import ServerMode, server_mode
from fleetx.fleet.servers.worker_program import server_programs, write_worker
from fleetx.fleet.strategy.distributed_strategy import DistributedStrategy
from fleetx.kernels import native
from fleetx.ps.client.client import Client, ClientSettings
from fleetx.ps.modes.mode import Mode
from fleetx.ps.server.server import run_server
from fleetx.ps.server.server_settings import ServerSettings
from fleetx.ps.server.snapshots import Durability
from fleetx.ps.tables.first_values import SERVERS
from fleetx.ps.wire.security import JobKeys
from fleetx.static.program import Program
from fleetx.step.compose import compose_program
from fleetx.step.program_step import ProgramStep
from fleetx.step.technique import Technique

if TYPE_CHECKING:
    from fleetx.fleet.session import Fleet

_log = logging.getLogger("fleetx.fleet")


# Techniques that leave the exchange of gradients alone, for modules and for programs.
_FOR_MODULES = ("lars", "lamb", "stop_on_nan")
_FOR_PROGRAMS = ("lars", "lamb", "recompute")


def is_server_job(role: RoleMakerBase) -> bool:
    """Tell whether a role is one of a job with parameter servers."""
    return not role.is_collective and not role.is_non_distributed() and role.server_num() > 0


def server_techniques(fleet: Fleet, optimizer: Any) -> list[Technique]:
    """Return the techniques that the session's strategy switches on; refuse those that need
    workers to exchange gradients among themselves."""
    if not isinstance(fleet._strategy, DistributedStrategy):
        return []
    _, found = fleet._choose(optimizer)
    of_module = isinstance(optimizer, torch.optim.Optimizer)
    if not of_module and not fleet._strategy.was_set("stop_on_nan"):
        found = [each for each in found if each.name != "stop_on_nan"]  # the default of a terminal
    allowed = _FOR_MODULES if of_module else _FOR_PROGRAMS
    wrong = [technique.name for technique in found if technique.name not in allowed]
    if wrong:
        raise ValueError(
            f"strategy.{wrong[0]} does not go with parameter servers, which {', '.join(allowed)} "
            "do: switch it off, or use fleet.init(is_collective=True)."
        )
    return found


class ServerPrograms:
    """The programs of one process."""

    def __init__(self, main: Program, startup: Program, origin: Program) -> None:
        self.main, self.startup, self.origin = main, startup, origin


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
        self.programs: ServerPrograms | None = None
        self.eager = EagerServers()

    # -- programs ---------------------------------------------------------------------
    def minimize(
        self,
        optimizer: Any,
        loss: Any,
        startup: Program,
        strategy: Any,
        techniques: Sequence[Technique],
        **more: Any,
    ) -> Any:
        """Complete a program and rewrite it; return what the optimizer's `minimize` returns."""
        step = ProgramStep(optimizer, None)
        compose_program(step, techniques)
        result = step.optimizer.minimize(loss, startup_program=startup, **more)
        self.write_programs(loss.block.program, startup, step.optimizer, strategy)
        if not self._role.is_server():
            observe_server_program(loss.block.program, loss.name, server_mode(strategy))
        return result

    def write_programs(
        self, main: Program, startup: Program, optimizer: Any, strategy: Any
    ) -> ServerPrograms:
        """Rewrite a program that `minimize` has completed, for the role of this process."""
        role, mode = self._role, server_mode(strategy)
        endpoints = role.server_endpoints()
        origin = main.clone()
        origin.binding.servers = None
        tables = find_tables(main, startup, optimizer, mode, len(endpoints))
        if role.is_server():
            self.write_server(main, startup)
        else:
            write_worker(main, startup, tables, mode, endpoints, worker=role.worker_index())
            self._link = ServerLink(mode, tables)
            main.binding.servers = startup.binding.servers = self._link
            if self._is_ready:
                self._link.join(self.client)
        self.programs = ServerPrograms(main, startup, origin)
        return self.programs

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
        """Remember where tables take their values from."""
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
            load_from=self._load_from,
            **more,
        )
        run_server(role.server_endpoints()[index], settings)

    @staticmethod
    def _say_if_slower() -> None:
        """Say in a server's log, and in that of the first worker, that fallbacks run."""
        if slower := native.slower_because():
            _log.warning("%s", slower)

    def _keys(self) -> JobKeys | None:
        return None if self._support.keys is None else JobKeys.from_dict(self._support.keys)

    def _require_server(self, name: str) -> None:
        if not self._role.is_server():
            raise RuntimeError(f"fleet.{name}() is for servers: ask fleet.is_server() first.")

    # -- workers ----------------------------------------------------------------------
    def init_worker(self) -> None:
        """Connect to the servers."""
        if not self._role.is_worker():
            raise RuntimeError("fleet.init_worker() is for workers: ask fleet.is_worker() first.")
        if self._is_ready:
            _log.warning("fleet.init_worker() was called already; nothing is done now.")
            return
        self._is_ready = True
        if self._link is None:
            self.client()
        else:
            self._link.join(self.client)

    def client(self) -> Client:
        """Return the connection to all servers, made when it is first needed."""
        if self._client is None:
            role = self._role
            if role.is_first_worker():
                self._say_if_slower()
            keys = self._keys()
            self._client = Client(
                role.server_endpoints(),
                worker=role.worker_index(),
                workers=role.worker_num(),
                settings=ClientSettings(keys=None if keys is None else keys.for_workers()),
            )
        return self._client

    def stop_worker(self) -> None:
        """Send what is left and disconnect; servers shut down after the last worker has done so."""
        mode = self._any_mode()
        if mode is not None:
            mode.stop()
        elif self._client is not None:
            self._client.finish()
        self._client, self._is_ready = None, False

    def _any_mode(self) -> Mode | None:
        if self._link is not None and self._link.is_started:
            return self._link.mode
        return self.eager.mode

    def barrier(self) -> None:
        """Wait for all workers."""
        self.client().barrier()

    # -- models -----------------------------------------------------------------------
    def model(self, model: nn.Module, strategy: Any) -> nn.Module:
        """Return a model that trains with servers."""
        return self.eager.model(model, self.client, server_mode(strategy), self._role)

    def optimizer(
        self,
        optimizer: torch.optim.Optimizer,
        strategy: Any,
        techniques: Sequence[Technique],
    ) -> Any:
        """Return an optimizer that trains with servers."""
        if self._role.is_server():
            return optimizer
        return self.eager.optimizer(optimizer, self.client, server_mode(strategy), techniques)

    # -- saving -----------------------------------------------------------------------
    def save_persistables(self, executor: Any, dirname: str, program: Any = None) -> None:
        """Save parameters as files of their own, and all tables with their state beside them."""
        from fleetx.fleet.servers.table_saving import save_parameters

        _check_savers(executor, program)
        mode = self._any_mode()
        if mode is None:
            raise RuntimeError("there is nothing to save yet: train first.")
        if self._link is not None and self._link.is_started:
            assert self.programs is not None
            save_parameters(executor, dirname, program or self.programs.main, self._link)
        mode.save(os.path.join(dirname, SERVERS))

    def load_model(self, dirname: str) -> None:
        """Let servers go on with what `save_persistables` wrote; fetch the parameters.

        One worker of them loads, the first one.
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

    def save_inference_model(
        self,
        executor: Any,
        dirname: str,
        feeds: Sequence[str],
        targets: Any,
        program: Any = None,
        *,
        export_for_deployment: bool = True,
    ) -> Any:
        """Save a model with its embeddings, which runs without servers."""
        from fleetx.fleet.servers.table_saving import save_model

        _check_savers(executor, program)
        if self._link is None or self.programs is None:
            raise RuntimeError("there is no program to save yet: call minimize() first.")
        return save_model(
            executor,
            dirname,
            feeds,
            targets if isinstance(targets, list | tuple) else [targets],
            program or self.programs.origin,
            self._link,
            export_for_deployment=export_for_deployment,
        )


def _check_savers(executor: Any, program: Any) -> None:
    """Refuse what cannot save, before a server is asked for anything."""
    from fleetx.static.compiled_program import CompiledProgram
    from fleetx.static.executor import Executor

    if executor is not None and not isinstance(executor, Executor):
        raise TypeError(
            f"executor is a {type(executor).__name__}: a job with parameter servers saves with an "
            "Executor."
        )
    if isinstance(program, CompiledProgram):
        raise TypeError("main_program is a CompiledProgram: give the program it was made from.")
