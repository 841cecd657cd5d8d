"""DistributeTranspiler: Paddle 1.x's way to divide a program, without a fleet.

    t = DistributeTranspiler()
    t.transpile(trainer_id, pservers="10.0.0.1:6174,10.0.0.2:6174", trainers=2)
    # a server:  executor.run(t.get_startup_program(endpoint)), executor.run(pserver_program)
    # a worker:  executor.run(startup_program), executor.run(t.get_trainer_program(), ...) …

The program that `minimize` has completed becomes a worker's, in place, with the ops that Paddle
writes (`transpiling/`); executors run it with messages of our own. A worker connects when it runs
the startup program and disconnects when its executor is closed or its process ends well; servers
shut down when the last worker has disconnected.
"""

from __future__ import annotations

import atexit
import copy
import sys
from typing import TYPE_CHECKING

from fleetx.paddle_rules.server_config import DistributeTranspilerConfig
from fleetx.runtime.network import wait_server_ready
from fleetx.static.graph.default_programs import default_main_program, default_startup_program
from fleetx.static.graph.program import Program

if TYPE_CHECKING:
    from fleetx.fleet.servers.job import ServerJob
    from fleetx.paddle_rules.transpiling.running import RunningPrograms
    from fleetx.paddle_rules.transpiling.server_programs import ServerText
    from fleetx.paddle_rules.transpiling.server_slices import Layout
    from fleetx.paddle_rules.transpiling.worker_programs import WorkerText

# `import paddle` imports this file. The Fleet API, which takes longer, and what writes the programs
# are imported by the functions that need them.


class DistributeTranspiler:
    """Divides a program between workers and parameter servers."""

    def __init__(self, config: DistributeTranspilerConfig | None = None) -> None:
        if config is not None and not isinstance(config, DistributeTranspilerConfig):
            raise TypeError(
                f"config must be a DistributeTranspilerConfig, not {type(config).__name__}."
            )
        self.config = config or DistributeTranspilerConfig()
        self.table_name: str | None = None
        """The table whose look-ups are distributed."""
        self._servers: list[str] = []
        self._trainers = 1
        self._job: ServerJob | None = None
        self._main: Program | None = None
        self._text: WorkerText | None = None
        self._running: RunningPrograms | None = None
        self._layout: Layout | None = None
        self._server_texts: dict[str, ServerText] = {}
        self._is_worker = False

    @property
    def has_distributed_lookup_table(self) -> bool:
        """Whether the look-ups in a table are distributed."""
        return self.table_name is not None

    def transpile(
        self,
        trainer_id: int,
        program: Program | None = None,
        pservers: str = "127.0.0.1:6174",
        trainers: int | str = 1,
        sync_mode: bool = True,
        startup_program: Program | None = None,
        current_endpoint: str = "127.0.0.1:6174",
    ) -> None:
        """Turn a program and its startup program into a worker's.

        Args:
            trainer_id: the rank of this worker; any number in a server.
            program: the program of `minimize`; the default main program if None.
            pservers: the servers' addresses, "ip:port,ip:port".
            trainers: the number of workers.
            sync_mode: whether every step waits for all workers.
            startup_program: the default one if None.
            current_endpoint: for collective training, which is not supported.
        """
        from fleetx.paddle_rules.server_strategy import strategy_of
        from fleetx.paddle_rules.transpiling.overview import placed_variables
        from fleetx.paddle_rules.transpiling.running import RunningPrograms
        from fleetx.paddle_rules.transpiling.server_slices import lay_out
        from fleetx.paddle_rules.transpiling.worker_programs import WorkerText

        main = default_main_program() if program is None else program
        startup = default_startup_program() if startup_program is None else startup_program
        config = copy.copy(self.config)
        if config.mode != "pserver" or not isinstance(trainers, int):
            raise ValueError(
                f"config.mode is {config.mode!r} and trainers {trainers!r}: DistributeTranspiler "
                "divides programs for parameter servers ('pserver', a number of workers); for "
                "collective training use fleet.init(is_collective=True)."
            )
        if main.binding.updated_by is None:
            raise ValueError(
                "the program has no updates: call optimizer.minimize(loss) before transpile()."
            )
        config.sync_mode = sync_mode
        if not sync_mode and not config.half_async:
            config.runtime_split_send_recv = True  # marks asynchronous training
        self._servers, self._trainers = pservers.split(","), trainers
        self._job = job = _job_of(trainer_id, "WORKER", trainers, self._servers)
        mode = strategy_of(config).server_mode()
        if mode.updates_on_worker:
            _check_geo(main)
        divided = (self.config, self._servers, trainer_id, trainers)
        self._text = text = WorkerText(lay_out(main, *divided, sync=sync_mode), main, startup)
        self._running = running = RunningPrograms(job, mode, text, main, startup)
        self._layout = layout = lay_out(running.main, *divided, sync=sync_mode)
        self.table_name = _distributed_table(running.main)
        self._main = main
        text.write()
        running.attach()
        main.place_on_servers(
            self._servers,
            is_chief=trainer_id == 0,
            table=self.table_name,
            variables=placed_variables(layout, running.main),
        )

    def get_trainer_program(self, wait_port: bool = True) -> Program:
        """Return the worker's program; makes this process a worker.

        Args:
            wait_port: whether to wait until all servers listen.
        """
        from fleetx.fleet.servers.program_link import ServerLink

        job, main = self._transpiled()
        assert self._text is not None
        self._text.drop_updates()
        if wait_port:
            wait_server_ready(self._servers)
        if not self._is_worker:
            self._is_worker = True
            job.init_worker(at_once=False)
            assert isinstance(main.binding.servers, ServerLink)
            main.binding.servers.on_close = self._disconnect
            atexit.register(self._at_exit)
        return main

    def get_pserver_program(self, endpoint: str) -> Program:
        """Return the program of the server at an address."""
        from fleetx.paddle_rules.transpiling.server_programs import ServerText

        _, origin = self._transpiled()
        if endpoint not in self._servers:
            raise ValueError(
                f"{endpoint!r} is not one of the servers passed to transpile(): "
                f"{', '.join(self._servers)}."
            )
        assert self._layout is not None
        assert self._running is not None
        text = ServerText(self._layout, self._running.main, self._running.startup, endpoint)
        self._server_texts[endpoint] = text
        shown, main = text.main(), Program()
        index = self._servers.index(endpoint)
        _job_of(index, "SERVER", self._trainers, self._servers).write_server(main, Program())
        shown.copy_placement_from(origin)
        shown.binding.runs_as = lambda _: main
        return shown

    def get_pserver_programs(self, endpoint: str) -> tuple[Program, Program]:
        """Return the programs of the server at an address: main and startup."""
        main = self.get_pserver_program(endpoint)
        return main, self.get_startup_program(endpoint, main)

    def get_startup_program(
        self,
        endpoint: str,
        pserver_program: Program | None = None,
        startup_program: Program | None = None,
    ) -> Program:
        """Return the startup program of a server.

        Running it does nothing: worker 0 sends the initial values.
        """
        main = self.get_pserver_program(endpoint) if pserver_program is None else pserver_program
        text = self._server_texts.get(endpoint)
        if text is None:
            raise RuntimeError(f"call get_pserver_program({endpoint!r}) first.")
        shown, nothing = text.startup(main), Program()
        shown.binding.runs_as = lambda _: nothing
        return shown

    def _transpiled(self) -> tuple[ServerJob, Program]:
        if self._job is None or self._main is None:
            raise RuntimeError("call transpile() first.")
        return self._job, self._main

    def _disconnect(self) -> None:
        if self._is_worker and self._job is not None:
            self._is_worker = False
            self._job.stop_worker()

    def _at_exit(self) -> None:
        # A process that ends by an exception has not finished; servers detect its end.
        if getattr(sys, "last_value", None) is None:
            self._disconnect()


def _job_of(index: int, role: str, trainers: int, servers: list[str]) -> ServerJob:
    """Return the job of a worker or server."""
    from fleetx.fleet.roles.role_maker import Role
    from fleetx.fleet.roles.user_defined_role_maker import UserDefinedRoleMaker
    from fleetx.fleet.servers.job import ServerJob

    return ServerJob(UserDefinedRoleMaker(index, Role[role], trainers, servers))


def _distributed_table(main: Program) -> str | None:
    """Return the first table whose look-ups are distributed; there may be several."""
    from fleetx.paddle_rules.transpiling.server_slices import LOOKUPS

    found = (op for op in main.global_block().ops if op.type in LOOKUPS)
    return next((op.input("W")[0] for op in found if op.attr("is_distributed")), None)


def _check_geo(main: Program) -> None:
    kinds = {op.type for op in main.global_block().ops if op.input("Param")} - {"sgd"}
    if kinds:
        raise ValueError(
            f"the program updates by {', '.join(sorted(kinds))}, but geo training sums "
            "the workers' changes, which is correct for SGD only: use fluid.optimizer.SGD."
        )


class GeoSgdTranspiler(DistributeTranspiler):
    """Divides a program for geo training: workers update locally, and send their changes."""

    def __init__(self, config: DistributeTranspilerConfig | None = None) -> None:
        super().__init__(config)
        self.config = copy.copy(self.config)
        self.config.geo_sgd_mode = True

    def transpile(
        self,
        trainer_id: int,
        program: Program | None = None,
        pservers: str = "127.0.0.1:6174",
        trainers: int | str = 1,
        sync_mode: bool = False,
        startup_program: Program | None = None,
        current_endpoint: str = "127.0.0.1:6174",
    ) -> None:
        """Turn a program and its startup program into a worker's; geo is always asynchronous."""
        super().transpile(
            trainer_id, program, pservers, trainers, False, startup_program, current_endpoint
        )
