"""Inference by a worker whose embeddings are on parameter servers.

A program that was built for inference, with the names of the trained one, looks its rows up at the
servers; other parameters are the worker's own, as training has left them in the scope.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from fleetx.fleet.servers.program_tables import lookups_of
from fleetx.fleet.servers.worker_program import use_served_rows
from fleetx.fleet.strategy.distributed_strategy import DistributedStrategy
from fleetx.static.graph.default_programs import default_main_program, default_startup_program
from fleetx.static.graph.program import Program


class DistributedInfer:
    """Makes programs for inference of a job with parameter servers."""

    def __init__(
        self, main_program: Program | None = None, startup_program: Program | None = None
    ) -> None:
        """Take a copy of a program, by default of the current one."""
        self.origin_main_program = (main_program or default_main_program()).clone()
        self.origin_startup_program = startup_program or default_startup_program()

    def init_distributed_infer_env(
        self, exe: Any, loss: Any, role_maker: Any = None, dirname: str | None = None
    ) -> None:
        """Join a job that only infers: servers load what was saved into `dirname` and serve."""
        fleet = _session()
        if fleet._role_maker is not None:
            return
        from fleetx.static.optimizer import SGD

        fleet.init(role_maker)
        strategy = DistributedStrategy()
        strategy.a_sync = True
        optimizer = fleet.distributed_optimizer(SGD(0.0), strategy)
        optimizer.minimize(loss, self.origin_startup_program)
        if fleet.is_server():
            fleet.init_server(dirname)
            fleet.run_server()
        else:
            exe.run(self.origin_startup_program)
            fleet.init_worker()

    def get_dist_infer_program(self) -> Program:
        """Return the program with look-ups at the servers."""
        programs = _session()._collective
        link = None if programs is None else programs.main.binding.servers
        if link is None:
            raise RuntimeError(
                "there are no servers to look rows up at: call minimize() of "
                "fleet.distributed_optimizer, or init_distributed_infer_env(), first."
            )
        program = self.origin_main_program
        found = {}
        for name, table in link.tables.sparse.items():
            lookups = lookups_of(program, name) if program.global_block().has_var(name) else []
            if lookups:
                found[name] = dataclasses.replace(table, lookups=lookups)
        use_served_rows(program, found)
        program.binding.servers = link
        return program


def _session() -> Any:
    # The session lives in the package, which imports this module's neighbours.
    return importlib.import_module("fleetx.fleet").fleet
