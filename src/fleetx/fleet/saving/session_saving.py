"""The part of a session that saves and loads models: programs, inference models, weights."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fleetx import comm
from fleetx.comm.attendance import all_attend
from fleetx.fleet.saving import divided_programs, plain_weights
from fleetx.fleet.saving.averaging import Averaging
from fleetx.fleet.servers.job import ServerJob
from fleetx.fleet.servers.local_rows import LocalRows, OnePair
from fleetx.step.technique import Technique

_PATIENCE = 60.0
"""Seconds that a save waits for all workers if each has a part of the state."""


class Saving(Averaging):
    """Programs, inference models and weights."""

    _servers: ServerJob | None
    _rows: LocalRows | OnePair
    _applied: list[Technique]

    def save_persistables(
        self,
        executor: Any,
        dirname: str,
        main_program: Any = None,
        filename: str | None = None,
        mode: int = 0,
    ) -> None:
        """Write the persistable variables of a program into a folder; each rank that calls it
        writes.

        Every file appears whole, so ranks that write into one folder leave one complete copy. If
        workers have trained alone since the last average (`localsgd`) and all of them call this,
        parameters are averaged first; otherwise the caller's own are written, with a warning.
        """
        from fleetx.static import io

        if self._servers is not None:
            self._servers.save_persistables(executor, dirname, main_program, self._collective)
            return
        rows = self._local_rows(main_program)
        if rows is not None:
            rows.save(dirname)
            return
        self._average_or_warn("fleet.save_persistables")
        collective = self._collective
        if collective is not None:
            divided_programs.check_file(collective.param_sync, filename)
        if main_program is None and collective is not None:
            main_program = collective.main  # techniques have variables of their own there
        io.save_persistables(executor, dirname, self._program_to_save(main_program), filename)

    def save_weights(self, path: str | os.PathLike[str], model: Any) -> None:
        """Write the weights of a model as the plain module has them; all workers must call it, and
        the first one writes.

        Args:
            path: a file that ends with `.safetensors`, or the folder of a model of Hugging Face's
                (one with `save_pretrained`).
            model: what `distributed_model` returned, or a module.
        """
        module = getattr(model, "module", model)
        plain_weights.check_target(module, Path(path))
        self._average_or_warn("fleet.save_weights")
        gathers = self._gathers(f"save_weights {path}")
        state = model.state_dict() if gathers or self.is_first_worker() else {}
        if self.is_first_worker():
            plain_weights.write(module, state, Path(path))

    @property
    def differs_by_worker(self) -> bool:
        """Whether a technique gives every worker a state of its own (`localsgd`, `dgc`)."""
        return any(technique.differs_by_worker for technique in self._applied)

    @property
    def gathers_state(self) -> bool:
        """Whether every worker has a part of the state (`sharding`), so that all must save it."""
        return any(technique.gathers_state for technique in self._applied)

    def _gathers(self, point: str) -> bool:
        """Return whether this call gathers the state of all workers; raise if not all make it."""
        if not (comm.is_connected() and self.gathers_state):
            return False
        if not all_attend(point, _PATIENCE):
            raise RuntimeError(
                f"fleet.{point.split()[0]} was called by worker {self.worker_index()}, but not by "
                f"all {self.worker_num()} workers within {_PATIENCE:g} s; each has a part of the "
                "state (sharding): let all workers call it, not the first one alone."
            )
        return True

    def _local_rows(self, program: Any) -> LocalRows | None:
        """Return the rows in this process, if what is trained is a module with such rows."""
        rows = self._rows
        is_module = program is None and self._collective is None
        return rows if is_module and isinstance(rows, LocalRows) and rows.has_rows else None

    def save_inference_model(
        self,
        executor: Any,
        dirname: str,
        feeded_var_names: list[str] | None = None,
        target_vars: Any = None,
        main_program: Any = None,
        export_for_deployment: bool = True,
    ) -> Any:
        """Write what inference needs of a program, pruned to feeds and targets.

        After local steps, parameters are averaged first as in `save_persistables`.
        """
        from fleetx.static import io

        if self._servers is not None:
            return self._servers.save_inference_model(
                executor,
                dirname,
                feeded_var_names or [],
                [] if target_vars is None else target_vars,
                main_program,
                self._collective,
                export_for_deployment=export_for_deployment,
            )
        if self._collective is not None:
            divided_programs.check_model(self._collective.param_sync)
        self._average_or_warn("fleet.save_inference_model")
        return io.save_inference_dir(
            dirname,
            feeded_var_names or [],
            [] if target_vars is None else target_vars,
            executor,
            self._program_to_save(main_program),
            export_for_deployment=export_for_deployment,
        )

    def save(
        self,
        dirname: str,
        feed: list[Any] | None = None,
        fetch: list[Any] | None = None,
        mode: int = 0,
    ) -> None:
        """Save on the first worker: an inference model if `feed` and `fetch` (names or variables)
        say of what, otherwise all persistable variables.

        After local steps, parameters are averaged first if all workers call this.
        """
        from fleetx.static.run.executor import Executor

        if (feed is None) != (fetch is None):
            raise ValueError("fleet.save() needs both feed and fetch, or neither of them.")
        if not self.is_first_worker():
            self._average_with_all()
            return
        if feed is None or fetch is None:
            self.save_persistables(Executor(), dirname, mode=mode)
            return
        targets = [self._variable(each) if isinstance(each, str) else each for each in fetch]
        self.save_inference_model(Executor(), dirname, [_name(each) for each in feed], targets)

    def load_model(self, path: str, mode: int = 0) -> None:
        """Load what `save` wrote without feed and fetch.

        In a job with servers the first worker's call makes them load, at once: the others must not
        be in the middle of a step. Geo training refuses.
        """
        from fleetx.static import io
        from fleetx.static.run.executor import Executor

        rows = self._local_rows(None)
        if rows is not None:
            rows.load(path)
        elif self._servers is None:
            io.load_persistables(Executor(), path, self._program_to_save(None))
        else:
            self._servers.load_model(path)

    def _variable(self, name: str) -> Any:
        return self._program_to_save(None).global_block().var(name)

    def _program_to_save(self, program: Any) -> Any:
        if program is None and self._collective is None:
            raise RuntimeError("there is no program to save yet: call minimize() first.")
        own = self._collective
        found = program or (own.main if own.param_sync.divides_parameters else own.origin)
        divided = [p.name for p in found.all_parameters() if p.is_distributed]
        if divided:
            raise ValueError(
                f"every worker has a part of {divided[0]!r} (split()), and Fleet saves what all "
                "workers have: let each one call static.save with a path of its own."
            )
        return found


def _name(variable: Any) -> str:
    return variable if isinstance(variable, str) else str(variable.name)
