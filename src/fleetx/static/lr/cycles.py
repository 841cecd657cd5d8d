"""Cyclic and metric-driven schedulers: cosine annealing, one cycle, cyclic, plateau."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fleetx.exports import export_defined
from fleetx.static.building.argument_checks import check_choice
from fleetx.static.lr.scheduler import LRScheduler, check_int, check_range, check_rate


def _cosine(start: float, end: float, part: float) -> float:
    """Interpolate from start to end along half a cosine."""
    return end + (start - end) / 2 * (1 + math.cos(math.pi * part))


def _linear(start: float, end: float, part: float) -> float:
    return start + (end - start) * part


class CosineAnnealingDecay(LRScheduler):
    """Cosine annealing between learning_rate and eta_min with half a period of T_max epochs."""

    def __init__(
        self,
        learning_rate: float,
        T_max: int,
        eta_min: float = 0,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        check_int(T_max, "T_max", "CosineAnnealingDecay")
        if not isinstance(eta_min, int | float):
            raise TypeError(
                f"eta_min of CosineAnnealingDecay must be a number, not {type(eta_min).__name__}."
            )
        self.T_max = T_max
        self.eta_min = float(eta_min)
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Return the rate at `last_epoch`, computed from the previous rate.

        A rate that was loaded or set by hand therefore stays the starting point.
        """
        epoch, low = self.last_epoch, self.eta_min
        if epoch == 0:
            return self.base_lr
        before = 1 + math.cos(math.pi * (epoch - 1) / self.T_max)
        now = 1 + math.cos(math.pi * epoch / self.T_max)
        if (epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # the previous rate was the lowest
            return self.last_lr + (self.base_lr - low) * (1 - math.cos(math.pi / self.T_max)) / 2
        return now / before * (self.last_lr - low) + low

    def _get_closed_form_lr(self) -> float:
        """Return the rate at `last_epoch` by a closed formula."""
        return _cosine(self.base_lr, self.eta_min, self.last_epoch / self.T_max)


class CosineAnnealingWarmRestarts(LRScheduler):
    """Cosine annealing to eta_min with warm restarts; cycles of T_0, T_0 * T_mult, ... epochs."""

    def __init__(
        self,
        learning_rate: float,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        owner = "CosineAnnealingWarmRestarts"
        check_range(isinstance(T_0, int) and T_0 > 0, "T_0", owner, "a positive int", T_0)
        ok = isinstance(T_mult, int) and T_mult >= 1
        check_range(ok, "T_mult", owner, "an int of at least 1", T_mult)
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Return the rate at `last_epoch`."""
        return _cosine(self.base_lr, self.eta_min, self.T_cur / self.T_i)

    def step(self, epoch: float | None = None) -> None:  # type: ignore[override]  # parts of epochs
        """Advance by one epoch, or to the given one, which may be fractional."""
        if epoch is None and self.last_epoch >= 0:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        else:
            epoch = 0 if epoch is None else epoch
            check_range(
                epoch >= 0, "epoch", "CosineAnnealingWarmRestarts.step", "at least 0", epoch
            )
            self._seek(epoch)
        self.last_epoch = math.floor(epoch)
        self._set(self.get_lr())

    def _seek(self, epoch: float) -> None:
        """Set the cycle that contains an epoch."""
        if epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            cycle = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            begin = self.T_0 * (self.T_mult**cycle - 1) / (self.T_mult - 1)
            self.T_cur, self.T_i = epoch - begin, self.T_0 * self.T_mult**cycle


class OneCycleLR(LRScheduler):
    """Increases from max / divide_factor to max, then decreases to end_learning_rate.

    All of it takes `total_steps`. With `three_phase` the rate first returns to its start value, in
    as many steps as it took to increase.
    """

    def __init__(
        self,
        max_learning_rate: float,
        total_steps: int,
        divide_factor: float = 25.0,
        end_learning_rate: float = 0.0001,
        phase_pct: float = 0.3,
        anneal_strategy: str = "cos",
        three_phase: bool = False,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        check_rate(max_learning_rate, "max_learning_rate", "OneCycleLR")
        check_rate(end_learning_rate, "end_learning_rate", "OneCycleLR")
        check_int(total_steps, "total_steps", "OneCycleLR")
        for value, name in ((phase_pct, "phase_pct"), (divide_factor, "divide_factor")):
            if not isinstance(value, int | float):
                raise TypeError(f"{name} of OneCycleLR must be a number, not {value!r}.")
        check_range(0 <= phase_pct <= 1, "phase_pct", "OneCycleLR", "between 0 and 1", phase_pct)
        check_choice(anneal_strategy, "anneal_strategy", ("cos", "linear"), "OneCycleLR")
        first = max_learning_rate / float(divide_factor)
        peak = phase_pct * total_steps - 1
        self.total_steps = total_steps
        self._rates = [first, max_learning_rate, float(end_learning_rate)]
        self._ends = [0, peak, total_steps - 1]
        if three_phase:
            rule = "less than 0.5 with three_phase"
            check_range(phase_pct < 0.5, "phase_pct", "OneCycleLR", rule, phase_pct)
            self._rates.insert(2, first)
            self._ends.insert(2, 2 * phase_pct * total_steps - 2)
        self._anneal = _cosine if anneal_strategy == "cos" else _linear
        super().__init__(first, last_epoch, verbose)

    def get_lr(self) -> float:
        """Return the rate at `last_epoch`."""
        now = self.last_epoch
        if now > self.total_steps:
            raise ValueError(
                f"OneCycleLR has {self.total_steps} steps, but was advanced to step {now}."
            )
        phase = next((i for i, end in enumerate(self._ends[1:]) if now <= end), len(self._ends) - 2)
        begin, end = self._ends[phase], self._ends[phase + 1]
        part = (now - begin) / (end - begin)
        return self._anneal(self._rates[phase], self._rates[phase + 1], part)


class CyclicLR(LRScheduler):
    """Cycles between base_learning_rate and max_learning_rate.

    Args:
        base_learning_rate: the lowest rate.
        max_learning_rate: the highest rate of the first cycle.
        step_size_up: the number of steps with an increasing rate.
        step_size_down: the number of steps with a decreasing rate; `step_size_up` by default.
        mode: "triangular" (constant amplitude), "triangular2" (the amplitude halves every cycle)
            or "exp_range" (the amplitude is multiplied by `exp_gamma` every step).
        exp_gamma: see `mode`.
        scale_fn: a function that scales the amplitude, instead of `mode`.
        scale_mode: whether `scale_fn` takes the "cycle" or the number of "iterations".
    """

    def __init__(
        self,
        base_learning_rate: float,
        max_learning_rate: float,
        step_size_up: int,
        step_size_down: int | None = None,
        mode: str = "triangular",
        exp_gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        check_rate(max_learning_rate, "max_learning_rate", "CyclicLR")
        check_int(step_size_up, "step_size_up", "CyclicLR")
        if step_size_down is None:
            step_size_down = step_size_up
        check_int(step_size_down, "step_size_down", "CyclicLR")
        scales: dict[str, tuple[Callable[[float], float], str]] = {
            "triangular": (lambda cycle: 1.0, "cycle"),
            "triangular2": (lambda cycle: 0.5 ** (cycle - 1), "cycle"),
            "exp_range": (lambda iterations: exp_gamma**iterations, "iterations"),
        }
        if scale_fn is None:
            check_choice(mode, "mode", scales, "CyclicLR")
        check_choice(scale_mode, "scale_mode", ("cycle", "iterations"), "CyclicLR")
        self.scale_fn, self.scale_mode = (
            scales[mode] if scale_fn is None else (scale_fn, scale_mode)
        )
        self.cycle_size = float(step_size_up + step_size_down)
        self.step_up_pct = step_size_up / self.cycle_size
        self.max_lr = float(max_learning_rate)
        self.amplitude = self.max_lr - base_learning_rate
        super().__init__(base_learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Return the rate at `last_epoch`."""
        iterations = self.last_epoch
        cycle = 1 + iterations // self.cycle_size
        place = 1.0 + iterations / self.cycle_size - cycle
        if place <= self.step_up_pct:
            height = place / self.step_up_pct
        else:
            height = (1 - place) / (1 - self.step_up_pct)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else iterations)
        return self.base_lr + self.amplitude * height * scale


class ReduceOnPlateau(LRScheduler):
    """Multiplies the rate by `factor` if a metric has not improved for `patience` epochs.

    Args:
        learning_rate: the initial rate.
        mode: "min" if a smaller metric is better, "max" if a larger one is.
        factor: the factor of a reduction.
        patience: the number of epochs without improvement that are tolerated.
        threshold: the smallest change that counts as an improvement.
        threshold_mode: whether `threshold` is relative to the best metric ("rel") or not ("abs").
        cooldown: the number of epochs to wait after a change of the rate.
        min_lr: the smallest rate.
        epsilon: smaller changes of the rate are ignored.
    """

    def __init__(
        self,
        learning_rate: float,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0,
        epsilon: float = 1e-8,
        verbose: bool = False,
    ) -> None:
        self.mode, self.threshold_mode = mode.lower(), threshold_mode.lower()
        check_choice(self.mode, "mode", ("min", "max"), "ReduceOnPlateau")
        check_choice(self.threshold_mode, "threshold_mode", ("rel", "abs"), "ReduceOnPlateau")
        check_range(factor < 1, "factor", "ReduceOnPlateau", "less than 1", factor)
        check_rate(learning_rate, "learning_rate", "ReduceOnPlateau")
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.cooldown = cooldown
        self.min_lr = min_lr
        self.epsilon = epsilon
        self.cooldown_counter = 0
        self.best: Any = None
        self.num_bad_epochs = 0
        # No initial step: there is no metric yet.
        self.base_lr = self.last_lr = float(learning_rate)
        self.last_epoch = 0
        self.verbose = verbose
        self._var_name = None

    def state_keys(self) -> None:
        """Set the names of the attributes that make up the state."""
        self.keys = ["cooldown_counter", "best", "num_bad_epochs", "last_epoch", "last_lr"]

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Record the metric of the next (or given) epoch; reduce the rate if it has stalled."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        value = _number(metrics)
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            return
        if self.best is None or self._is_better(value):
            self.best = value
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.num_bad_epochs > self.patience:
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
            rate = max(self.last_lr * self.factor, self.min_lr)
            if self.last_lr - rate > self.epsilon:
                self._set(rate)

    def _is_better(self, value: float) -> bool:
        margin = self.threshold * (self.best if self.threshold_mode == "rel" else 1)
        if self.mode == "min":
            return bool(value < self.best - margin)
        return bool(value > self.best + margin)


def _number(metrics: Any) -> float:
    size = getattr(metrics, "size", 1)
    if callable(size):  # a torch tensor
        size = metrics.numel()
    if size != 1:
        raise ValueError(
            f"metrics of ReduceOnPlateau.step must be one number, but has {size}; take the mean."
        )
    if not isinstance(metrics, int | float | np.ndarray | np.number) and not hasattr(
        metrics, "item"
    ):
        raise TypeError(
            f"metrics of ReduceOnPlateau.step must be a number, not {type(metrics).__name__}."
        )
    return float(metrics.item() if hasattr(metrics, "item") else metrics)


export_defined(globals())
