"""Averaging parameters that workers have trained alone, before they are saved.

With techniques such as `localsgd`, workers have parameters of their own between two exchanges.
`synchronize_model` averages them; saving does so if all workers save at the same point, and
otherwise warns that one worker's parameters are written.
"""

from __future__ import annotations

import atexit
import json
import logging
import sys
import weakref
from typing import Any, NamedTuple

from fleetx import comm
from fleetx.comm.attendance import all_attend
from fleetx.fleet.collective.module_training import EagerTraining
from fleetx.fleet.roles.identity import Identity

logger = logging.getLogger("fleetx.fleet")


class _Apart(NamedTuple):
    """A model or program whose parameters each worker has trained alone."""

    updates: int
    behind: int
    save_wait: float


class Averaging(Identity):
    """One model on all workers."""

    _collective: Any
    _eager: EagerTraining

    def synchronize_model(self, scope: Any = None) -> None:
        """Give all workers the mean of their parameters and statistics; all must call it.

        For the end of training, or before a save, with techniques that let workers train alone
        (`localsgd`, `adaptive_localsgd`); with other techniques parameters are equal, and the call
        does nothing. The parameters of a program are those in `scope`, by default the global one.
        """
        self._role  # noqa: B018 - raises if init was not called
        for pair in self._eager.pairs:
            pair.step.synchronize()
        if self._collective is not None:
            self._collective.param_sync.synchronize(_global_scope() if scope is None else scope)

    def _trained_alone(self) -> list[_Apart]:
        """Return the models and programs whose parameters are not equal on all workers."""
        stages = [pair.step.param_sync for pair in self._eager.pairs]
        found = [_Apart(stage.count, stage.behind, stage.save_wait) for stage in stages]
        if self._collective is not None:
            sync, scope = self._collective.param_sync, _global_scope()
            found.append(_Apart(sync.count(scope), sync.behind(scope), sync.save_wait))
        return [each for each in found if each.behind]

    def _behind(self) -> int:
        """Return the largest number of updates since the parameters were equal on all workers."""
        return max((each.behind for each in self._trained_alone()), default=0)

    def _average_with_all(self) -> float | None:
        """Average parameters that workers have trained alone, if all of them save at this point.

        Return None if all workers have equal parameters now, otherwise the seconds that this one
        waited.
        """
        apart = self._trained_alone()
        if not apart:
            return None
        seconds = max(each.save_wait for each in apart)
        point = json.dumps([(each.updates, each.behind) for each in apart])
        if not (comm.is_connected() and all_attend(point, seconds)):
            return seconds
        self.synchronize_model()
        return None

    def _average_or_warn(self, call: str) -> None:
        """Average parameters that workers have trained alone, or warn that this worker saves its
        own.
        """
        waited = self._average_with_all()
        if waited is not None:
            logger.warning(
                "%s writes the parameters of worker %d only, which had %d update(s) since the last "
                "average over the workers, because not all workers called it within %g s: let all "
                "of them call it, or fleet.synchronize_model() before one of them saves.",
                call,
                self.worker_index(),
                self._behind(),
                waited,
            )


_sessions: weakref.WeakSet[Averaging] = weakref.WeakSet()


def watch_exit(session: Averaging) -> None:
    """Check at exit whether workers have ended with different parameters."""
    if not _sessions:
        atexit.unregister(_warn_at_exit)
        atexit.register(_warn_at_exit)
    _sessions.add(session)


def _warn_at_exit() -> None:
    behind = max((session._behind() for session in _sessions), default=0)
    if behind and not hasattr(sys, "last_value"):  # not after an error
        logger.warning(
            "the training ends %d update(s) after the last average over the workers, so every "
            "worker has different parameters: let all workers call fleet.synchronize_model() after "
            "the last step.",
            behind,
        )


def _global_scope() -> Any:
    from fleetx.static.run.scope import global_scope

    return global_scope()
