"""PyTorch optimizers that take the place of the script's own one.

They share its parameter groups, dictionaries included, so that learning-rate schedulers made for
the script's optimizer act on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch.optim import Optimizer

from fleetx import torch_private

Group = dict[str, Any]


class ReplacedOptimizer(Optimizer):
    """Base of such optimizers; it can be made from parameters too, like any other of torch's.

    `exclude_from_weight_decay` of a group needs the names of parameters: they come from
    `named_parameters()` given as `params`, or from `take_names`.
    """

    def __init__(self, params: Any, defaults: dict[str, Any], inner: Optimizer | None = None):
        super().__init__(params if inner is None else inner.param_groups, defaults)
        if inner is not None:
            self.param_groups = inner.param_groups
            self.register_step_post_hook(partial(_tell_schedulers, inner))
        self._names: dict[torch.Tensor, str] = {}
        for group in self.param_groups:
            names = group.get("param_names", ())
            self._names.update(zip(group["params"], names, strict=False))

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy needs."""
        return {**super().__getstate__(), "_names": self._names}

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update all parameters; `closure` computes the loss again first."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self._update(group)
        return loss

    def _update(self, group: Group) -> None:
        """Update the parameters of a group that have gradients."""
        raise NotImplementedError

    def _rows(self, group: Group, decay_name: str) -> dict[Any, list[Any]]:
        """Return parameters, gradients and state, by what must be equal for one call."""
        rows: dict[Any, list[Any]] = {}
        for p in group["params"]:
            if p.grad is None:
                continue
            count, state = self._advance(p, self.state[p])
            decay = 0.0 if self._is_excluded(p, group) else group[decay_name]
            row = (p.detach(), dense_grad(p, group["weight_decay"]), *state)
            rows.setdefault((decay, count, p.device, p.dtype), []).append(row)
        return rows

    def _advance(
        self, parameter: torch.Tensor, state: dict[str, Any]
    ) -> tuple[int, tuple[torch.Tensor, ...]]:
        """Count a step in a parameter's state, created here; return the count and the tensors."""
        raise NotImplementedError

    def take_names(self, parameters: Mapping[str, torch.Tensor]) -> None:
        """Set the names of the parameters."""
        self._names = {p: name for name, p in parameters.items()}

    def _is_excluded(self, parameter: torch.Tensor, group: Group) -> bool:
        """Return whether a parameter has no weight decay."""
        patterns: Iterable[str] = group["exclude_from_weight_decay"]
        if not patterns:
            return False
        if parameter not in self._names:
            raise ValueError(
                f"{type(self).__name__} needs the parameters' names for exclude_from_weight_decay: "
                "give it model.named_parameters(), or call fleet.distributed_model."
            )
        return self._matches(self._names[parameter], patterns)

    @staticmethod
    def _matches(name: str, patterns: Iterable[str]) -> bool:
        raise NotImplementedError

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state; the groups stay the dictionaries that schedulers know."""
        shared = self.param_groups
        super().load_state_dict(state_dict)
        for group, loaded in zip(shared, self.param_groups, strict=True):
            group.update(loaded)
        self.param_groups = shared


def _tell_schedulers(inner: Optimizer, *_: Any) -> None:
    """Note on the script's optimizer that there was a step: its schedulers warn otherwise."""
    torch_private.note_step(inner)


def dense_grad(parameter: torch.Tensor, decay: float) -> torch.Tensor:
    """Return the gradient of a parameter, with L2 decay of the script's optimizer added."""
    grad = parameter.grad
    assert grad is not None
    if grad.is_sparse:
        grad = grad.to_dense()
    return grad.add(parameter, alpha=decay) if decay else grad
