"""Training in an elastic job: workers come and go, and a step counts for all of them or for none.

    begin    before a forward pass: join the next generation if there is one, receive the state
    run      after backward: exchange, vote, and update if all workers have finished the exchange

If a worker is lost, the others discard the unfinished step, form a new group and repeat its
batches. The script's loop does not change.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import logging
import os
import sys
import weakref
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from fleetx.comm.elastic_group import ElasticGroup
from fleetx.comm.elastic_link import (
    CoordinatorLink,
    ExcludedError,
    Formation,
    JobFailedError,
    JobFinishedError,
)
from fleetx.fleet.collective.elastic_parts import GradientParts
from fleetx.fleet.collective.elastic_state import SetState, SharedState, Stateful
from fleetx.fleet.roles.role_maker import RoleMakerBase
from fleetx.runtime import heartbeat, network
from fleetx.runtime.elastic_environment import ElasticPlace
from fleetx.step.gradient_sync import is_all_reduce
from fleetx.step.stages import Parameters
from fleetx.step.train_step import TrainStep

if TYPE_CHECKING:
    from fleetx.fleet.collective.elastic_loader import ElasticLoader

logger = logging.getLogger("fleetx.fleet")


class ElasticTraining:
    """This worker's part in an elastic job."""

    def __init__(self, place: ElasticPlace, role: RoleMakerBase, timeout_seconds: float) -> None:
        host = place.coordinator[0]
        own = network.address_towards(host) or network.resolve(host) or "127.0.0.1"
        self._role = role
        self._group = ElasticGroup(own, timeout_seconds)
        self._link = CoordinatorLink(place, role.worker_index(), self._group.store, self._group.cut)
        self._state: SharedState | None = None
        self._step: TrainStep | None = None
        self._shared: dict[str, Stateful] = {}
        self._position: ElasticLoader | None = None
        self._card = ""
        self._parts = GradientParts()
        self._keeps_everything = self._weighs = False
        self._needs_group = True
        self._is_open = False  # a step has begun and is neither finished nor discarded
        self._is_discarded = False  # the last step is to be rolled back
        self._formation: Formation | None = None
        self._has_failed = False
        self.steps = 0
        """The steps that the job has finished."""
        _close_in_children(self)
        self._watch_failures()
        atexit.register(self.end)

    @property
    def size(self) -> int:
        """The current number of workers."""
        return 1 if self._formation is None else self._formation.size

    def share(self, objects: dict[str, Stateful]) -> None:
        """Send the states of these objects to new workers too, and restore them with discarded
        steps.
        """
        for name, item in objects.items():
            loads, sets = hasattr(item, "load_state_dict"), hasattr(item, "set_state_dict")
            if not hasattr(item, "state_dict") or not (loads or sets):
                raise TypeError(
                    f"fleet.share_state({name}=…) takes objects with state_dict and "
                    f"load_state_dict or set_state_dict, not a {type(item).__name__}."
                )
            self._shared[name] = item if loads else SetState(item)

    def follow(self, position: ElasticLoader) -> None:
        """Advance a position in the data with the steps, and only with finished ones."""
        if self._position is not None:
            raise RuntimeError(
                "an elastic job has one fleet.elastic_loader: iterate over the training data with "
                "it, and over other data with a DataLoader."
            )
        self._position = position
        self.share({"the position in the data": position})

    def train(
        self, state: Callable[[dict[str, Stateful]], SharedState], step: TrainStep, card: Any
    ) -> None:
        """Train this step from now on; `card` is what must be equal on all workers."""
        self._take(state(self._shared), card)
        self._step = step
        # Others change parameters or residuals before all workers have agreed.
        self._keeps_everything = not is_all_reduce(step.grad_sync)
        # An all-reduce divides by the number of samples itself; without an exchange none count.
        self._weighs = self._keeps_everything and not step.param_sync.trains_alone
        step.decide_by(self)

    def train_program(self, state: Callable[[dict[str, Stateful]], SharedState], card: Any) -> None:
        """Train a program from now on, whose runs change all of its state at once."""
        self._take(state(self._shared), card)
        self._keeps_everything = True

    def _take(self, state: SharedState, card: Any) -> None:
        if self._state is not None:
            raise RuntimeError(
                "an elastic job trains one model with one optimizer: join them in one nn.Module "
                "or program and one optimizer, or start fleetrun without --elastic."
            )
        self._state = state
        self._card = hashlib.sha256(json.dumps(card).encode()).hexdigest()

    # ---- before a step

    def before(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Return the forward function of the model as it begins a step."""

        @wraps(forward)
        def begin_and_run(*args: Any, **kwargs: Any) -> Any:
            # A step that the loader has begun ends as one, even if a worker was lost meanwhile:
            # its batch belongs to the group that was there.
            if torch.is_grad_enabled() and not self._is_open:
                self.begin()
            return forward(*args, **kwargs)

        return begin_and_run

    def begin(self) -> None:
        """Begin a step, unless one has begun: form a group first if that is due."""
        if self._state is None:
            raise RuntimeError(
                "the training begins before model and optimizer are known: call "
                "fleet.distributed_model and fleet.distributed_optimizer first."
            )
        if self._is_open and not self._link.is_broken:
            return
        if self._is_open:
            self._discard()
        if self._is_discarded:
            # Only now: the script may have called its scheduler after the discarded step.
            self._is_discarded = False
            self._state.put_back()
        while self._needs_group or self._link.is_broken:
            self._form(self._state)
        self._state.remember(everything=self._keeps_everything)
        self._is_open = True

    def _form(self, state: SharedState) -> None:
        """Join the next generation, and get or give the state."""
        try:
            with heartbeat.collective("join of the next generation"):
                formation = self._link.join(self._card)
        except (ExcludedError, JobFinishedError, JobFailedError) as error:
            self._stop(error)
        try:
            with self._link.bounded():
                self._group.form(formation, lambda: self._link.is_broken, self._link.form_within)
            if formation.fresh:
                self._transfer(state, formation)
        except RuntimeError as error:
            self._needs_group = True
            self._vote(str(error))
            return
        before, self._formation = self._formation, formation
        self._needs_group = False
        self.steps = formation.steps
        self._role.take_place(formation.rank, formation.size)
        if self._position is not None:
            self._position.take_place(formation.rank, formation.size)
        self._announce(before, formation)

    def _transfer(self, state: SharedState, formation: Formation) -> None:
        with heartbeat.collective("transfer of the state"):
            if formation.rank == formation.source:
                state.send(formation.source)
            else:
                needed = formation.rank in formation.fresh
                state.receive(formation.source, is_needed=needed)

    def _announce(self, before: Formation | None, now: Formation) -> None:
        if now.rank == 0 and now.generation > 1:
            was = "" if before is None else f" (before: {before.size})"
            logger.warning(
                "Training goes on with %d workers%s after step %d.", now.size, was, now.steps
            )

    # ---- after backward

    def divisor(self) -> float:
        """Return what this worker divides its gradients by."""
        return self.size if self._position is None else self._position.divisor(self.size)

    def weight(self) -> float:
        """Return this worker's share of the samples of the last batch."""
        if self._position is None:
            return 1.0 / self.size
        return 1.0 / self._position.divisor(self.size, last=True)

    def require_whole_batch(self) -> None:
        """Reject micro-batches, which a program cannot accumulate."""
        if self._position is not None and not self._position.part()[1]:
            raise RuntimeError(
                "fleet.elastic_loader(…, micro_batch_size=…) hands out parts of a step, and a run "
                "of a program is a whole step: leave micro_batch_size out."
            )

    def collect(self, parameters: Parameters) -> bool:
        """Accumulate the gradients of a step of several micro-batches; return whether it is
        complete.
        """
        count, is_last = (1, True) if self._position is None else self._position.part()
        if is_last and not self._parts.count:
            return True
        self._parts.add(parameters, count)
        if is_last:
            self._parts.give_back(parameters)
        return is_last

    def run(self, exchange: Callable[[], bool], apply: Callable[[bool], None]) -> None:
        """Run a step, and keep its result only if all workers have finished it."""
        if not self._is_open:
            raise RuntimeError(
                "optimizer.step() without a forward pass of the model that fleet.distributed_model "
                "returned: an elastic job needs one per step."
            )
        error = ""
        usable = False
        assert self._step is not None
        try:
            if self._link.is_broken:
                raise RuntimeError("a worker was lost before the exchange")
            self._weigh()
            usable = exchange()
            if self._keeps_everything:
                apply(usable)
                if self._step.param_sync.behind:
                    return  # workers train alone until the next average
        except RuntimeError as failure:
            error = str(failure) or type(failure).__name__
        if self._vote(error):
            if not self._keeps_everything:
                apply(usable)
            self._finish_step()
        else:
            self._discard()

    def run_program(self, compute: Callable[[], Any], ends_step: Callable[[], bool]) -> Any:
        """Run a program, and keep its result only if all workers have finished it; return what
        `compute` returns, or None if it was aborted.

        `ends_step` returns whether the run has ended a step: after others, workers differ.
        """
        found, error = None, "a worker was lost before the run"
        if not self._link.is_broken:
            try:
                found, error = compute(), ""
            except Exception as failure:
                # The exchange with a lost worker fails; whatever else fails is the program's.
                if not self._link.wait_until_broken():
                    raise
                error = str(failure) or type(failure).__name__
            else:
                if not ends_step():
                    return found
        if self._vote(error):
            self._finish_step()
        else:
            self._discard()
        return found

    def _finish_step(self) -> None:
        self.steps += 1
        self._is_open = False
        if self._position is not None:
            self._position.finish_step()

    @torch.no_grad()
    def _weigh(self) -> None:
        """Weight this worker's gradients by its samples, for an exchange that averages."""
        assert self._step is not None
        if not self._weighs:
            return
        factor = self.size / self.divisor()
        for parameter in self._step.parameters.values() if factor != 1 else ():
            if parameter.grad is not None:
                parameter.grad.mul_(factor)

    def _vote(self, error: str) -> bool:
        position = None if self._position is None else self._position.reached()
        try:
            with heartbeat.collective("vote on a step"):
                verdict = self._link.vote(error=error, position=position)
        except (ExcludedError, JobFinishedError, JobFailedError) as reason:
            self._stop(reason)
        self._needs_group = self._needs_group or verdict.regroup
        return verdict.finished

    def _discard(self) -> None:
        self._parts = GradientParts()
        self._is_open = False
        self._needs_group = self._is_discarded = True

    # ---- the end

    def _stop(self, reason: Exception) -> NoReturn:
        self.end()
        if isinstance(reason, JobFailedError):
            raise RuntimeError(str(reason)) from None
        if isinstance(reason, JobFinishedError):
            logger.warning("The job has finished; this worker came too late to take part.")
            raise SystemExit(0) from None
        raise SystemExit(
            "This worker was excluded from the job: it was silent for longer than "
            "--elastic_timeout, or fleetrun on the first machine has ended."
        )

    def _watch_failures(self) -> None:
        """Record uncaught errors: a worker that ends with one has not finished."""
        show_before = sys.excepthook
        own = weakref.ref(self)

        def show(
            kind: type[BaseException], error: BaseException, trace: TracebackType | None
        ) -> None:
            training = own()
            if training is not None:
                training._has_failed = True
            show_before(kind, error, trace)

        sys.excepthook = show

    def end(self) -> None:
        """Leave the job."""
        atexit.unregister(self.end)
        if self._has_failed:
            self._link.close()
        else:
            self._link.leave()
        self._group.leave()

    def close_in_child(self) -> None:
        """Close the connections in a forked process."""
        self._link.forget_in_child()
        self._group.forget_in_child()


def _close_in_children(training: ElasticTraining) -> None:
    own = weakref.ref(training)

    def close() -> None:
        found = own()
        if found is not None:
            found.close_in_child()

    os.register_at_fork(after_in_child=close)
