"""Detect updates that bypass the techniques in the optimizer's step.

LocalSGD, gradient_merge, dgc, lars and others act in `step()` of the optimizer that
`fleet.distributed_optimizer` returned. A script that steps another optimizer (the wrapped one, or
one that fleet does not know) trains without them, and workers silently diverge. A hook that torch
calls after every optimizer's step raises an error.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

if TYPE_CHECKING:
    from fleetx.fleet.collective.module_training import Pair


class UpdateWatch:
    """Checks all updates of a session's parameters, from `start` to `end`."""

    def __init__(self, watched: Sequence[Pair]) -> None:
        self._watched = watched
        self._seen: WeakKeyDictionary[Optimizer, int] = WeakKeyDictionary()
        """The number of calls of the steps when an optimizer last updated."""
        self._handle: Any = None

    def start(self) -> None:
        """Start watching updates."""
        if self._handle is None:
            me = weakref.ref(self)

            def look(optimizer: Optimizer, _: Any, __: Any) -> None:
                watch = me()
                if watch is not None:
                    watch._look(optimizer)

            self._handle = register_optimizer_step_post_hook(look)
            weakref.finalize(self, self._handle.remove)

    def end(self) -> None:
        """Stop watching updates."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _look(self, optimizer: Optimizer) -> None:
        mine = [w for w in self._watched if w.acting and w.update is optimizer]
        if not mine:  # of its own, or one inside another or around it
            held = {id(p) for group in optimizer.param_groups for p in group["params"]}
            mine = [w for w in self._watched if w.acting and not held.isdisjoint(w.parameters)]
        if not mine:
            return
        calls = sum(w.calls for w in mine)
        if calls == self._seen.get(optimizer, 0):
            names = " and ".join(dict.fromkeys(name for w in mine for name in w.acting))
            raise RuntimeError(
                f"{type(optimizer).__name__}.step() was called for a model that the strategy "
                f"trains with {names}, but that happens in step() of the optimizer that "
                "fleet.distributed_optimizer returns: call optimizer = "
                "fleet.distributed_optimizer(optimizer) and then step() of that one."
            )
        self._seen[optimizer] = calls
