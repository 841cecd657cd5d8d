"""The part of a session that saves and loads checkpoints."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from typing import Any

from fleetx import comm
from fleetx.fleet.saving import checkpoints, random_states
from fleetx.fleet.saving.background_saving import BackgroundSaving
from fleetx.fleet.saving.data_position import Resumable
from fleetx.fleet.saving.memory_copy import MemoryCopy
from fleetx.fleet.saving.retention import Retention
from fleetx.fleet.saving.row_states import ROWS, has_modules, load_rows, local_tables
from fleetx.fleet.saving.session_saving import Saving
from fleetx.fleet.saving.snapshot import Snapshot, prepare, take

logger = logging.getLogger("fleetx.fleet")

# The name of the random states among the parts of a checkpoint.
_RANDOM = "random@states"


class Checkpoints(Saving):
    """Checkpoints of everything that a script gives, and of what techniques add."""

    _background: BackgroundSaving
    _memory: MemoryCopy

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
