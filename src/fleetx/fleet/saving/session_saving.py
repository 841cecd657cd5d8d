"""The part of a session that saves and loads models and checkpoints."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleetx import comm
from fleetx.comm.attendance import all_attend
from fleetx.fleet.saving import checkpoints, divided_programs, plain_weights, random_states
from fleetx.fleet.saving.averaging import Averaging
from fleetx.fleet.saving.background_saving import BackgroundSaving
from fleetx.fleet.saving.data_position import Resumable
from fleetx.fleet.saving.memory_copy import MemoryCopy
from fleetx.fleet.saving.retention import Retention
from fleetx.fleet.saving.row_states import ROWS, has_modules, load_rows, local_tables
from fleetx.fleet.saving.snapshot import Snapshot, prepare, take
from fleetx.fleet.servers.job import ServerJob
from fleetx.fleet.servers.local_rows import LocalRows, OnePair
from fleetx.step.technique import Technique

logger = logging.getLogger("fleetx.fleet")

# The name of the random states among the parts of a checkpoint.
_RANDOM = "random@states"
_PATIENCE = 60.0
"""Seconds that a save waits for all workers if each has a part of the state."""


class Saving(Averaging):
    """Programs, inference models and checkpoints."""

    _servers: ServerJob | None
    _rows: LocalRows | OnePair
    _applied: list[Technique]
    _background: BackgroundSaving
    _memory: MemoryCopy

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

    @staticmethod
    def resumable(data: Any) -> Resumable:
        """Return data (a DataLoader, a reader) that counts its batches, for exact checkpoints.

        Iterate over the result, and give it to `save_checkpoint` and `load_checkpoint`.
        """
        return Resumable(data)

    def save_checkpoint(
        self,
        path: str,
        *,
        keep: int = 3,
        every: int | None = None,
        exact: bool | None = None,
        blocking: bool = True,
        **parts: Any,
    ) -> Any:
        """Write a checkpoint of everything given: `save_checkpoint(dir, model=model, optimizer=opt,
        epoch=3)`; return its folder.

        Objects with a state_dict are saved through it, other values as they are. With `exact`, the
        random states of every worker are saved too, so that a resumed training continues with the
        same bits; that is the default in a job with one worker. With several, every worker must
        then call it, into a folder that all share, as with a technique that gives workers states of
        their own (localsgd, dgc). Otherwise rank 0 writes, and the others return at once; with
        `sharding` they must call it too, for each has a part of the state. The newest `keep`
        checkpoints stay, and those whose number is a multiple of `every`. With a model, the rows of
        its embeddings are saved too, and in a job with parameter servers all of their tables, into
        a folder that the servers see.

        With `blocking=False` everything is copied, and a thread writes the copy while training
        continues. At most one such save is in flight: the next call waits for it and raises its
        error, as `wait_for_checkpoint` does. The program waits for it at exit, and fails with its
        error if any.
        """
        Retention(keep, every)  # a bad value is an error on every worker
        self.wait_for_checkpoint()
        states = self._states_to_save(f"save_checkpoint {path}", exact, blocking, parts)
        if states is None:
            return None
        served = self._servers if has_modules(parts.values()) else None
        others = self._others() if self._differ(exact) else None
        strategy = [technique.name for technique in self._applied]
        settings: dict[str, Any] = {
            "keep": keep,
            "every": every,
            "strategy": strategy,
            "memory": self._memory,
            "save_tables": None if served is None else served.save_tables,
        }
        if blocking:
            return checkpoints.save(path, states, others=others, **settings)
        place = path if "://" in str(path) else os.path.abspath(path)
        self._write_in_background(place, states, others, settings)
        return None

    def prepare_checkpoint(self, *, exact: bool | None = None, **parts: Any) -> None:
        """Reserve the memory for the copy that `save_checkpoint(blocking=False)` takes of the same
        parts, so that the first such save does not wait for new memory.

        A thread allocates the memory while training continues. Call it with the arguments of
        `save_checkpoint`, after the first step, when most optimizers have created their state. The
        memory is kept until the end of the program.
        """
        states = self._states_to_save("prepare_checkpoint", exact, False, parts)
        if states is not None:
            prepare(states, self._background.buffer)

    def _differ(self, exact: bool | None) -> bool:
        """Return whether every worker saves a state of its own."""
        return self._is_exact(exact) or self.differs_by_worker

    def _is_exact(self, exact: bool | None) -> bool:
        return self.worker_num() == 1 if exact is None else exact

    def _states_to_save(
        self, point: str, exact: bool | None, blocking: bool, parts: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Return what this worker saves, or None if that is the first worker's task."""
        for reserved in (_RANDOM, ROWS, checkpoints.SERVED):
            if reserved in parts:
                raise ValueError(f"{reserved!r} cannot be the name of a part of a checkpoint.")
        others = self._others() if self._differ(exact) else None
        is_written = others is not None or self.is_first_worker()
        if not self._gathers(point) and not is_written:
            return None
        if others is not None and not blocking and not comm.is_connected():
            raise ValueError(
                "save_checkpoint(blocking=False) cannot write a state per worker in a job with "
                "parameter servers: save with blocking=True, or with exact=False by the first "
                "worker."
            )
        served = self._servers if has_modules(parts.values()) else None
        if served is not None and not blocking:
            raise ValueError(
                "save_checkpoint(blocking=False) cannot save a model whose tables are on parameter "
                "servers, which save them before this call returns: save with blocking=True."
            )
        states = {k: v.state_dict() if hasattr(v, "state_dict") else v for k, v in parts.items()}
        if not is_written:
            return None
        several = self.worker_num() > 1
        exact = self._is_exact(exact)
        if several and not exact and any(isinstance(p, Resumable) for p in parts.values()):
            raise ValueError(
                "fleet.resumable(…) has a position per worker: save it with exact=True, by all "
                "workers."
            )
        if served is None and (tables := local_tables(parts.values())):
            states[ROWS] = {name: table.state_dict() for name, table in tables.items()}
        if exact:
            states[_RANDOM] = {"workers": self.worker_num(), **random_states.capture()}
        return states

    def _write_in_background(
        self,
        path: str,
        states: dict[str, Any],
        others: checkpoints.Others | None,
        settings: dict[str, Any],
    ) -> None:
        background = self._background
        if others is not None:
            background.connect()
            others = replace(others, gather=background.gather)
        content: Snapshot | Exception
        try:
            content = take(states, background.buffer)
        except Exception as error:
            if others is None:
                raise
            content = error  # raised on all workers by the next call that waits
        background.start(lambda: checkpoints.save(path, content, others=others, **settings))

    def wait_for_checkpoint(self) -> Any:
        """Wait until the checkpoint that `save_checkpoint(blocking=False)` began is written.

        Return the folder of the last one that was written so, None if there is none. If it could
        not be written, raise the error.
        """
        return self._background.wait()

    def _others(self) -> checkpoints.Others | None:
        is_served = self._servers is not None and self.worker_num() > 1
        if not (comm.is_connected() or is_served):
            return None
        return checkpoints.Others(
            self.worker_index(),
            self.worker_num(),
            lambda number: [int(n) for n in self.util.all_gather(number)],
        )

    def load_checkpoint(
        self, path: str, *, exact: bool = True, **parts: Any
    ) -> dict[str, Any] | None:
        """Load the newest whole checkpoint into the objects given; return the other values, None if
        there is none.

        Every worker must call it. The checkpoint is read and verified before any object is changed;
        a damaged one is skipped with a warning, and the next older one is used. Random states are
        restored if they were saved, unless `exact` is False. One that holds a state for each worker
        can be loaded by another number of workers: floating-point tensors are averaged, as a
        synchronisation would do; a line lists what cannot be averaged. If a checkpoint is being
        written, the call waits for it.
        """
        self.wait_for_checkpoint()
        states = checkpoints.load(path, self._others(), self._memory)
        if states is None:
            return None
        random = states.pop(_RANDOM, None)
        rows, served = states.pop(ROWS, {}), states.pop(checkpoints.SERVED, None)
        missing = [name for name in parts if name not in states]
        if missing:
            raise ValueError(
                f"the checkpoint in {path} has no {missing[0]!r}; it has {', '.join(states)}."
            )
        for name, part in parts.items():
            part.load_state_dict(states[name])
        load_rows(parts.values(), rows, served, self._servers)
        if random is not None and exact:
            if random["workers"] == self.worker_num():
                random_states.restore(random)
            elif self.is_first_worker():
                logger.info(
                    "The random states of %d worker(s) are not restored in a job with %d.",
                    random["workers"],
                    self.worker_num(),
                )
        return {name: value for name, value in states.items() if name not in parts}

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
