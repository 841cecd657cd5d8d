"""The distributed optimizer of the eager front end: the composed step behind torch's names and
Fleet's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

from fleetx.comm import world
from fleetx.fleet.collective.gradient_watch import GradientWatch
from fleetx.runtime import heartbeat
from fleetx.step.train_step import TrainStep
from fleetx.techniques.dgc import DgcMomentum, without_held_back


class DistributedOptimizer(Optimizer):
    """The optimizer that `fleet.distributed_optimizer` returns: torch's names and Fleet's, on the
    groups of the wrapped one.

    It is an Optimizer, so learning-rate schedulers, GradScaler and state_dict work on it. `step`
    runs the techniques that act after backward; without any, it is the wrapped optimizer's step.
    `find_watches` is called before the first step: it checks that a distributed model has the
    parameters, and returns the checks to run before each step.
    """

    def __init__(
        self,
        train_step: TrainStep,
        find_watches: Callable[[], list[GradientWatch]] = list,
    ) -> None:
        # Optimizer.__init__ is not called: groups, state and hooks are the inner optimizer's.
        self.inner = train_step.update
        self.train_step = train_step
        self.calls = 0
        """The number of calls of `step` and `flush`."""
        self._find_watches = find_watches
        self._watches: list[GradientWatch] | None = None
        self._groups = len(self.param_groups)
        self._saw_backward = False
        self._noted: torch.Tensor | None = None  # its gradient shows whether backward ran
        self._watch_backward(train_step.parameters)
        train_step.when_named.append(self._watch_backward)

    def __getattr__(self, name: str) -> Any:
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The wrapped optimizer's parameter groups."""
        return self.inner.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """The wrapped optimizer's state."""
        return self.inner.state

    @property
    def defaults(self) -> Any:  # type: ignore[override]
        """The wrapped optimizer's defaults."""
        return self.inner.defaults

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients."""
        self.inner.zero_grad(set_to_none)

    def clear_grad(self) -> None:
        """Clear the gradients; Fleet's name for `zero_grad`."""
        self.zero_grad()

    def get_lr(self) -> float:
        """Return the learning rate of the first group."""
        return float(self.param_groups[0]["lr"])

    def set_lr(self, value: float) -> None:
        """Set the learning rate of all groups."""
        for group in self.param_groups:
            group["lr"] = value

    def set_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state; Fleet's name for `load_state_dict`."""
        self.load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters to the wrapped optimizer."""
        self.inner.add_param_group(param_group)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Whether GradScaler leaves unscaling to `step`; it reads this before each of its steps."""
        if self.train_step.precision.expects_overflow():
            raise RuntimeError(
                "torch.amp.GradScaler is used with strategy.amp, which scales the loss itself, so "
                "that the loss would be scaled twice: leave GradScaler out (loss.backward(), "
                "optimizer.step()), or set strategy.amp = False."
            )
        if self.train_step.grad_sync.innermost().divides:
            raise RuntimeError(
                "torch.amp.GradScaler decides by the gradients on this worker, but sharding leaves "
                "it a part of them, so that workers would disagree: leave GradScaler out and set "
                "strategy.amp = True, or set sharding_configs['stage'] to 1."
            )
        return bool(getattr(self.inner, "_step_supports_amp_scaling", False))

    def take_step(self, train_step: TrainStep) -> None:
        """Replace the step; the parameter groups stay the same."""
        self.train_step, self.inner = train_step, train_step.update
        self._watches = None

    def _check_gradients(self) -> None:
        """Raise an error if gradients that should be averaged are not."""
        if len(self.param_groups) != self._groups:  # some were added: the step is to name them
            self._groups = len(self.param_groups)
            self.train_step.take_optimizer(self.inner)
            self._watches = None
        if self._watches is None:
            self._watches = self._find_watches()
        for watch in self._watches:
            watch.check()

    def _watch_backward(self, parameters: dict[str, torch.Tensor]) -> None:
        first = next((p for p in parameters.values() if p.requires_grad), None)
        if first is not None and first is not self._noted:
            self._noted = first
            first.register_post_accumulate_grad_hook(self._note_backward)

    def _note_backward(self, _: torch.Tensor) -> None:
        self._saw_backward = True

    def step(  # type: ignore[override]
        self,
        closure: Callable[[], Any] | None = None,
        *,
        loss: torch.Tensor | None = None,
    ) -> Any:
        """Update the parameters; techniques that need the loss get it from `loss`."""
        self._saw_backward = False
        self.calls += 1
        heartbeat.beat()
        if loss is not None and self.train_step.on_loss is not None:
            self.train_step.on_loss(loss)
        if self.train_step.is_plain:
            if closure is None:
                self._check_gradients()
                return self.inner.step()
            return self.inner.step(self._checked(closure))
        if isinstance(self.inner, torch.optim.LBFGS):
            raise TypeError(
                "LBFGS runs backward several times per step, but the strategy's techniques act "
                "once per step: switch them off, or use another optimizer."
            )
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._check_gradients()
        self.train_step.run(loss)
        return loss

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the scaled loss to call `backward` on under amp; without amp in float16, the loss
        itself.

        Plain `loss.backward()` is correct for losses computed from the model's outputs and from
        parameters. A loss that uses other values from inside the model, or gradients
        (`create_graph=True`), needs this or `minimize(loss)`.
        """
        return self.train_step.precision.scaled(loss)

    @property
    def is_update_step(self) -> bool:
        """Whether the next call of `step` updates the parameters; False while `gradient_merge` only
        accumulates.

        In both cases `p.grad` is the gradient of the last backward pass: the merged one exists only
        inside `step`, where `strategy.gradient_clip` clips it.
        """
        return self.train_step.grad_sync.updates_next()

    def flush(self, *, loss: torch.Tensor | None = None) -> None:
        """Update with the gradients that `gradient_merge` has accumulated since the last update, at
        the end of an epoch whose number of steps is not a multiple of `k_steps`.

        With `avg` they are divided by the number of accumulated steps. All workers must call it; it
        does nothing if there are no gradients. `adaptive_localsgd` needs the last `loss`.
        """
        self.calls += 1
        heartbeat.beat()
        self.train_step.flush(loss)

    def _checked(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Return a closure that checks the gradients it has computed.

        LBFGS decides by the returned loss how often to call it, so the mean over all workers is
        returned: all decide alike, and their collectives match.
        """
        averages = isinstance(self.inner, torch.optim.LBFGS) and world.is_connected()

        def run() -> Any:
            loss = closure()
            self._check_gradients()
            return world.all_reduce(loss.detach()) / world.world_size() if averages else loss

        return run

    def minimize(self, loss: torch.Tensor, *_: Any, **__: Any) -> tuple[None, list[Any]]:
        """Run backward, unless the script has, and update the parameters."""
        if not self._saw_backward:
            self.inner.zero_grad()
            self.train_step.precision.scaled(loss).backward()  # type: ignore[no-untyped-call]
        pairs = [(p, p.grad) for g in self.param_groups for p in g["params"] if p.grad is not None]
        self.step(loss=loss)
        return None, pairs

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapped optimizer's state, and under "fleet" that of the techniques.

        All workers must call it if each has a part of the state (`sharding`).
        """
        state = self.train_step.updater.optimizer_state(self.inner)
        techniques = self.train_step.state_dict()
        return {**state, "fleet": techniques} if techniques else state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""
        rest = dict(state_dict)
        techniques = rest.pop("fleet", {})
        self.train_step.load_state_dict(techniques)
        if not isinstance(self.inner, DgcMomentum):
            rest = without_held_back(rest, techniques)
        self.train_step.updater.load_optimizer_state(self.inner, rest)
