"""Schedulers defined by a formula of the epoch: steps, exponentials, polynomials, warm-up."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from typing import Any

from fleetx.exports import export_defined
from fleetx.static.lr.scheduler import LRScheduler, check_int, check_range


class NoamDecay(LRScheduler):
    """learning_rate * d_model^-0.5 * min(epoch^-0.5, epoch * warmup_steps^-1.5)."""

    def __init__(
        self,
        d_model: int,
        warmup_steps: int,
        learning_rate: float = 1.0,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        check_range(d_model > 0, "d_model", "NoamDecay", "positive", d_model)
        self.d_model = d_model
        self.warmup_steps = warmup_steps
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Return the rate at `last_epoch`."""
        falling = 1.0 if self.last_epoch == 0 else self.last_epoch**-0.5
        rising = self.warmup_steps**-1.5 * self.last_epoch
        return float(self.base_lr * self.d_model**-0.5 * min(falling, rising))


class PiecewiseDecay(LRScheduler):
    """values[i] before boundaries[i], the last value after all of them."""

    def __init__(
        self,
        boundaries: Sequence[int],
        values: Sequence[float],
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        if not len(boundaries):
            raise ValueError("boundaries of PiecewiseDecay must not be empty.")
        if len(values) <= len(boundaries):
            raise ValueError(
                f"values of PiecewiseDecay must be one more than the {len(boundaries)} boundaries, "
                f"but are {len(values)}."
            )
        self.boundaries = boundaries
        self.values = values
        super().__init__(last_epoch=last_epoch, verbose=verbose)

    def get_lr(self) -> float:
        """Return the rate at `last_epoch`."""
        place = bisect.bisect_right(self.boundaries, self.last_epoch)
        return self.values[place if place < len(self.boundaries) else -1]


class NaturalExpDecay(LRScheduler):
    """learning_rate * e^(-gamma * epoch)."""

    def __init__(
        self, learning_rate: float, gamma: float, last_epoch: int = -1, verbose: bool = False
    ) -> None:
        check_range(gamma > 0, "gamma", "NaturalExpDecay", "positive", gamma)
        self.gamma = gamma
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Return the rate at `last_epoch`."""
        return self.base_lr * math.exp(-self.gamma * self.last_epoch)


class InverseTimeDecay(LRScheduler):
    """learning_rate / (1 + gamma * epoch)."""

    def __init__(
        self, learning_rate: float, gamma: float, last_epoch: int = -1, verbose: bool = False
    ) -> None:
        self.gamma = gamma
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Return the rate at `last_epoch`."""
        return self.base_lr / (1 + self.gamma * self.last_epoch)


class PolynomialDecay(LRScheduler):
    """(learning_rate - end_lr) * (1 - epoch / decay_steps)^power + end_lr.

    The epoch stops at `decay_steps`; with `cycle`, `decay_steps` grows to its next multiple.
    """

    def __init__(
        self,
        learning_rate: float,
        decay_steps: int,
        end_lr: float = 0.0001,
        power: float = 1.0,
        cycle: bool = False,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        check_int(decay_steps, "decay_steps", "PolynomialDecay")
        check_range(power > 0, "power", "PolynomialDecay", "positive", power)
        self.decay_steps = decay_steps
        self.end_lr = end_lr
        self.power = power
        self.cycle = cycle
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Return the rate at `last_epoch`."""
        epoch, steps = self.last_epoch, self.decay_steps
        if self.cycle:
            steps *= max(math.ceil(epoch / steps), 1)
        else:
            epoch = min(epoch, steps)
        return float((self.base_lr - self.end_lr) * (1 - epoch / steps) ** self.power + self.end_lr)


class LinearWarmup(LRScheduler):
    """Linear warm-up from start_lr to end_lr, then `learning_rate` (a number or scheduler)."""

    def __init__(
        self,
        learning_rate: float | LRScheduler,
        warmup_steps: int,
        start_lr: float,
        end_lr: float,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        if not isinstance(learning_rate, int | float | LRScheduler):
            raise TypeError(
                "learning_rate of LinearWarmup must be a number or an LRScheduler, not "
                f"{type(learning_rate).__name__}."
            )
        check_int(warmup_steps, "warmup_steps", "LinearWarmup")
        rule = f"greater than start_lr ({start_lr})"
        check_range(end_lr > start_lr, "end_lr", "LinearWarmup", rule, end_lr)
        self.learning_rate = learning_rate
        self.warmup_steps = warmup_steps
        self.start_lr = start_lr
        self.end_lr = end_lr
        super().__init__(start_lr, last_epoch, verbose)

    def get_lr(self) -> float:
        """Return the rate at `last_epoch`."""
        if self.last_epoch < self.warmup_steps:
            span = self.end_lr - self.start_lr
            return span * self.last_epoch / self.warmup_steps + self.start_lr
        if isinstance(self.learning_rate, LRScheduler):
            self.learning_rate.step(self.last_epoch - self.warmup_steps)
            return self.learning_rate()
        return self.learning_rate

    def state_dict(self) -> dict[str, Any]:
        """Return the state to save, including that of the scheduler after the warm-up."""
        state = super().state_dict()
        if isinstance(self.learning_rate, LRScheduler):
            state["LinearWarmup_LR"] = self.learning_rate.state_dict()
        return state

    def set_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a saved state."""
        own = {k: v for k, v in state_dict.items() if k != "LinearWarmup_LR"}
        super().set_state_dict(own)
        if isinstance(self.learning_rate, LRScheduler):
            self.learning_rate.set_state_dict(state_dict["LinearWarmup_LR"])

    set_dict = set_state_dict


class ExponentialDecay(LRScheduler):
    """learning_rate * gamma^epoch."""

    def __init__(
        self, learning_rate: float, gamma: float, last_epoch: int = -1, verbose: bool = False
    ) -> None:
        check_range(0 < gamma < 1, "gamma", "ExponentialDecay", "between 0 and 1", gamma)
        self.gamma = gamma
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Return the rate at `last_epoch`."""
        return float(self.base_lr * self.gamma**self.last_epoch)


class MultiStepDecay(LRScheduler):
    """learning_rate, multiplied by gamma at each milestone."""

    def __init__(
        self,
        learning_rate: float,
        milestones: Sequence[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        if not isinstance(milestones, list | tuple):
            raise TypeError(
                "milestones of MultiStepDecay must be a list or tuple, not "
                f"{type(milestones).__name__}."
            )
        rising = all(a < b for a, b in zip(milestones, milestones[1:], strict=False))
        check_range(rising, "milestones", "MultiStepDecay", "rising", milestones)
        check_range(gamma < 1, "gamma", "MultiStepDecay", "less than 1", gamma)
        self.milestones = milestones
        self.gamma = gamma
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Return the rate at `last_epoch`."""
        passed = bisect.bisect_right(self.milestones, self.last_epoch)
        return float(self.base_lr * self.gamma**passed)


class StepDecay(LRScheduler):
    """learning_rate, multiplied by gamma every `step_size` epochs."""

    def __init__(
        self,
        learning_rate: float,
        step_size: int,
        gamma: float = 0.1,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        check_int(step_size, "step_size", "StepDecay")
        check_range(gamma < 1, "gamma", "StepDecay", "less than 1", gamma)
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Return the rate at `last_epoch`."""
        return float(self.base_lr * self.gamma ** (self.last_epoch // self.step_size))


class _ByFunction(LRScheduler):
    def __init__(
        self,
        learning_rate: float,
        lr_lambda: Callable[[int], float],
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        owner, given = type(self).__name__, type(lr_lambda).__name__
        if not callable(lr_lambda):
            raise TypeError(f"lr_lambda of {owner} must be a function, not {given}.")
        self.lr_lambda = lr_lambda
        super().__init__(learning_rate, last_epoch, verbose)


class LambdaDecay(_ByFunction):
    """learning_rate * lr_lambda(epoch)."""

    def get_lr(self) -> float:
        """Return the rate at `last_epoch`."""
        return self.base_lr * self.lr_lambda(self.last_epoch)


class MultiplicativeDecay(_ByFunction):
    """learning_rate * lr_lambda(1) * lr_lambda(2) * ... * lr_lambda(epoch)."""

    def get_lr(self) -> float:
        """Return the rate at `last_epoch`."""
        factors = (self.lr_lambda(epoch) for epoch in range(1, self.last_epoch + 1))
        return math.prod(factors, start=self.base_lr)


class LinearLR(LRScheduler):
    """learning_rate times a factor that goes from start_factor to end_factor in `total_steps`."""

    def __init__(
        self,
        learning_rate: float,
        total_steps: int,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        ok = 0 < start_factor <= 1
        check_range(ok, "start_factor", "LinearLR", "above 0 and at most 1", start_factor)
        check_range(0 <= end_factor <= 1, "end_factor", "LinearLR", "between 0 and 1", end_factor)
        check_range(total_steps > 0, "total_steps", "LinearLR", "positive", total_steps)
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_steps = total_steps
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Return the rate at `last_epoch`."""
        part = min(self.last_epoch, self.total_steps) / self.total_steps
        factor = self.start_factor + (self.end_factor - self.start_factor) * part
        return self.base_lr * factor


export_defined(globals())
