"""LRScheduler: a learning rate that the training loop advances with `step()`."""

from __future__ import annotations

import sys
import warnings
from typing import Any


class LRScheduler:
    """Base of all schedulers: `get_lr()` computes the rate at `last_epoch`, a call returns it.

    Args:
        learning_rate: the rate to start from.
        last_epoch: the epoch before the first one; -1 starts at 0.
        verbose: whether to print every new rate.
    """

    # The variable of the program that holds the rate; set by the optimizer.
    _var_name: str | None = None

    def __init__(
        self, learning_rate: float = 0.1, last_epoch: int = -1, verbose: bool = False
    ) -> None:
        check_rate(learning_rate, "learning_rate", type(self).__name__)
        self.base_lr = float(learning_rate)
        self.last_lr = float(learning_rate)
        self.last_epoch = last_epoch
        self.verbose = verbose
        self._var_name = None
        self.step()

    def __call__(self) -> float:
        """Return the current learning rate."""
        return self.last_lr

    def step(self, epoch: int | None = None) -> None:
        """Advance by one epoch, or to the given one."""
        if epoch is None:
            self.last_epoch += 1
            self._set(self.get_lr())
        else:
            self.last_epoch = epoch
            self._set(self._get_closed_form_lr())

    def get_lr(self) -> float:
        """Return the rate at `last_epoch`; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} must define get_lr().")

    def _get_closed_form_lr(self) -> float:
        """Return the rate at `last_epoch` by a closed formula, independent of the previous rate."""
        return self.get_lr()

    def _set(self, rate: float) -> None:
        self.last_lr = rate
        if self.verbose:
            sys.stdout.write(
                f"Epoch {self.last_epoch}: {type(self).__name__} set learning rate to {rate}.\n"
            )

    # -- state --------------------------------------------------------------------------------
    def state_keys(self) -> None:
        """Set `keys`, the names of the attributes that make up the state."""
        self.keys = ["last_epoch", "last_lr"]

    def state_dict(self) -> dict[str, Any]:
        """Return the state to save."""
        self.state_keys()
        return {key: vars(self)[key] for key in self.keys if key in vars(self)}

    def set_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a saved state."""
        self.state_keys()
        for key in self.keys:
            if key not in state_dict:
                raise RuntimeError(
                    f"the state of {type(self).__name__} must have {key!r}, but has only "
                    f"{sorted(state_dict)}."
                )
            setattr(self, key, state_dict[key])
        if len(state_dict) > len(self.keys):
            more = sorted(set(state_dict) - set(self.keys))
            warnings.warn(
                f"{type(self).__name__} does not use {more} of the given state; was it saved by "
                "another scheduler?",
                stacklevel=2,
            )

    set_dict = set_state_dict


def check_rate(value: Any, name: str, owner: str) -> None:
    """Reject a value that is not a non-negative number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} of {owner} must be a number, not {type(value).__name__}.")
    if value < 0:
        raise ValueError(f"{name} of {owner} must not be negative, but is {value}.")


def check_int(value: Any, name: str, owner: str) -> None:
    """Reject a value that is not a positive integer."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} of {owner} must be an int, not {type(value).__name__}.")
    if value <= 0:
        raise ValueError(f"{name} of {owner} must be positive, but is {value}.")


def check_range(ok: bool, name: str, owner: str, rule: str, value: Any) -> None:
    """Reject a value that is out of range."""
    if not ok:
        raise ValueError(f"{name} of {owner} must be {rule}, but is {value}.")
