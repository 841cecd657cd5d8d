"""Saving what was trained: the part of a session that writes files."""

from __future__ import annotations

import atexit
import logging
import sys
import weakref
from typing import Any

from fleetx import comm
from fleetx.fleet.collective.module_training import EagerTraining
from fleetx.fleet.roles.identity import Identity
from fleetx.fleet.saving import checkpoints
from fleetx.fleet.servers.job import ServerJob
from fleetx.step.technique import Technique

logger = logging.getLogger("fleetx.fleet")


class Saving(Identity):
    """Programs, inference models and checkpoints."""

    _collective: Any
    _eager: EagerTraining
    _servers: ServerJob | None
    _applied: list[Technique]

    # -- one model on all workers -----------------------------------------------------
    def synchronize_model(self, scope: Any = None) -> None:
        """Give all workers the mean of their parameters and statistics; all must call it.

        For the end of a training, or in front of a save, with techniques that let workers train
        alone (`localsgd`, `adaptive_localsgd`); with others workers are equal, and nothing is done.
        The parameters of a program are those in `scope`, by default the global one.
        """
        self._role  # noqa: B018 - raises if init was not called
        for pair in self._eager.pairs:
            pair.step.synchronize()
        if self._collective is not None:
            self._collective.param_sync.synchronize(_global_scope() if scope is None else scope)

    def _behind(self) -> int:
        """Return the largest number of updates since the parameters were equal on all workers."""
        found = [pair.step.param_sync.behind for pair in self._eager.pairs]
        if self._collective is not None:
            found.append(self._collective.param_sync.behind(_global_scope()))
        return max(found, default=0)

    def _warn_if_apart(self, call: str) -> None:
        """Say that what a single worker saves is its own, where workers have trained alone."""
        behind = self._behind()
        if behind:
            logger.warning(
                "%s writes the parameters of worker %d alone, which have seen %d update(s) since "
                "the last average over the workers: let all workers call "
                "fleet.synchronize_model() before one of them saves.",
                call,
                self.worker_index(),
                behind,
            )

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

        Every file appears whole, so ranks that write into one folder leave one complete copy.
        """
        from fleetx.static import io

        if self._servers is not None:
            self._servers.save_persistables(executor, dirname, main_program, self._collective)
            return
        self._warn_if_apart("fleet.save_persistables")
        if main_program is None and self._collective is not None:
            main_program = self._collective.main  # techniques have variables of their own there
        io.save_persistables(executor, dirname, self._program_to_save(main_program), filename)

    def save_inference_model(
        self,
        executor: Any,
        dirname: str,
        feeded_var_names: list[str] | None = None,
        target_vars: Any = None,
        main_program: Any = None,
        export_for_deployment: bool = True,
    ) -> Any:
        """Write what inference needs of a program, pruned to feeds and targets."""
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
        self._warn_if_apart("fleet.save_inference_model")
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
        say of what, otherwise all persistable variables."""
        from fleetx.static.run.executor import Executor

        if (feed is None) != (fetch is None):
            raise ValueError("fleet.save() needs both feed and fetch, or neither of them.")
        if not self.is_first_worker():
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

        if self._servers is None:
            io.load_persistables(Executor(), path, self._program_to_save(None))
        else:
            self._servers.load_model(path)

    def save_checkpoint(self, path: str, *, keep: int = 3, **parts: Any) -> Any:
        """Write a checkpoint of everything given: `save_checkpoint(dir, model=model, optimizer=opt,
        epoch=3)`.

        Objects with a state_dict are saved by it, other values as they are. Rank 0 writes; the
        others return at once. With a technique that gives workers states of their own (localsgd,
        dgc) every worker must call it, into a folder that all share. The newest `keep` stay.
        """
        others = self._others() if any(t.differs_by_worker for t in self._applied) else None
        if others is None and not self.is_first_worker():
            return None
        states = {k: v.state_dict() if hasattr(v, "state_dict") else v for k, v in parts.items()}
        return checkpoints.save(path, states, keep=keep, others=others)

    def _others(self) -> checkpoints.Others | None:
        is_served = self._servers is not None and self.worker_num() > 1
        if not (comm.is_connected() or is_served):
            return None
        return checkpoints.Others(
            self.worker_index(),
            self.worker_num(),
            lambda number: [int(n) for n in self.util.all_gather(number)],
        )

    def load_checkpoint(self, path: str, **parts: Any) -> dict[str, Any] | None:
        """Load the newest checkpoint into the objects given; return the other values, None if there
        is none.

        Every worker must call it. The checkpoint is read and verified before any object is changed.
        One that holds a state for each worker can be loaded by another number of workers: floating
        tensors become their mean, which is what a synchronisation would have given; what cannot be
        averaged is named in a line.
        """
        states = checkpoints.load(path, self._others())
        if states is None:
            return None
        missing = [name for name in parts if name not in states]
        if missing:
            raise ValueError(
                f"the checkpoint in {path} has no {missing[0]!r}; it has {', '.join(states)}."
            )
        for name, part in parts.items():
            part.load_state_dict(states[name])
        return {name: value for name, value in states.items() if name not in parts}

    def _variable(self, name: str) -> Any:
        return self._program_to_save(None).global_block().var(name)

    def _program_to_save(self, program: Any) -> Any:
        if program is not None:
            return program
        if self._collective is None:
            raise RuntimeError("there is no program to save yet: call minimize() first.")
        return self._collective.origin


_sessions: weakref.WeakSet[Saving] = weakref.WeakSet()


def watch_exit(session: Saving) -> None:
    """Look at the end of the process whether its workers have ended with different parameters."""
    if not _sessions:
        atexit.unregister(_warn_at_exit)
        atexit.register(_warn_at_exit)
    _sessions.add(session)


def _warn_at_exit() -> None:
    behind = max((session._behind() for session in _sessions), default=0)
    if behind and not hasattr(sys, "last_value"):  # not after an error
        logger.warning(
            "the training ends %d update(s) after the last average over the workers, so that "
            "every worker holds parameters of its own: let all workers call "
            "fleet.synchronize_model() behind the last step.",
            behind,
        )


def _global_scope() -> Any:
    from fleetx.static.run.scope import global_scope

    return global_scope()


def _name(variable: Any) -> str:
    return variable if isinstance(variable, str) else str(variable.name)
