"""Map the parameters of an optimizer to their shards when a model is divided between workers.

An optimizer may be created from the whole parameters, before or after the model is divided; its
parameters and state are then replaced by the shards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from fleetx.comm.divided_tensors import divided_like


class ReplacedParameters:
    """Parameters before and after a model was divided."""

    def __init__(self) -> None:
        self._pairs: list[tuple[Tensor, Tensor]] = []

    def note(self, before: Mapping[str, Tensor], model: nn.Module) -> None:
        """Record what each parameter of a model was replaced by."""
        after = dict(model.named_parameters())
        self._pairs = [(p, after[name]) for name, p in before.items() if after[name] is not p]
        for old, _ in self._pairs:
            old.data = old.data.new_empty(0)  # remaining references hold no memory

    def take_optimizer(self, optimizer: Optimizer) -> None:
        """Replace the whole parameters of an optimizer by the parts."""
        new = {id(old): part for old, part in self._pairs}
        for group in optimizer.param_groups:
            group["params"][:] = [new.get(id(p), p) for p in group["params"]]
        for old, part in self._pairs:
            if old in optimizer.state:
                state = optimizer.state.pop(old)
                optimizer.state[part] = {key: part_of(v, part) for key, v in state.items()}


def part_of(value: Any, parameter: Tensor) -> Any:
    """Return this worker's part of an entry of a parameter's state."""
    is_like = isinstance(value, Tensor) and value.shape == parameter.shape
    return divided_like(value, parameter) if is_like else value
