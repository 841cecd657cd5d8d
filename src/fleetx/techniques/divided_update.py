"""The update of parameters of which every worker has a part.

Elementwise optimizers get plain tensors instead of DTensors: they need not know about sharding, and
are faster. Their state is sharded too; it is saved as a whole and loaded by shards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.optim import (
    ASGD,
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    NAdam,
    Optimizer,
    RAdam,
    RMSprop,
    Rprop,
)

from fleetx.comm.divided_tensors import is_divided, own_part, whole, whole_of_part
from fleetx.step.replaced_parameters import part_of
from fleetx.step.stages import Update
from fleetx.techniques.copies import OwnParts

_ELEMENT_BY_ELEMENT = (
    ASGD, SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, NAdam, RAdam, RMSprop, Rprop,
)  # fmt: skip


class DividedUpdate(Update):
    """The optimizer updates this worker's parts."""

    def __init__(self) -> None:
        self._parts = OwnParts()

    def apply(self, optimizer: Optimizer) -> None:
        """Update this worker's parts."""
        parameters = _parameters(optimizer)
        divided = [p for p in parameters if is_divided(p)]
        if type(optimizer) in _ELEMENT_BY_ELEMENT:
            with self._plain(optimizer, divided):
                optimizer.step()
        elif divided and len(divided) < len(parameters):  # torch's loops take one kind at a time
            others = [p for p in parameters if not is_divided(p)]
            for hidden in (others, divided):
                with without_gradients(hidden):
                    optimizer.step()
        else:
            optimizer.step()

    @contextmanager
    def _plain(self, optimizer: Optimizer, divided: list[Tensor]) -> Iterator[None]:
        """Replace divided parameters by plain tensors."""
        parts = self._parts({str(i): p for i, p in enumerate(divided)})
        pairs = list(zip(divided, parts.values(), strict=True))
        given = [(group, list(group["params"])) for group in optimizer.param_groups]
        plain = {id(p): part for p, part in pairs}
        for p, part in pairs:
            part.grad = own_part(p.grad)
            if p in optimizer.state:
                optimizer.state[part] = {k: own_part(v) for k, v in optimizer.state.pop(p).items()}
        for group, params in given:
            group["params"] = [plain.get(id(p), p) for p in params]
        try:
            yield
        finally:
            for group, params in given:
                group["params"] = params
            for p, part in pairs:
                part.grad = None
                if part in optimizer.state:
                    optimizer.state[p] = optimizer.state.pop(part)

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return the state of all parts as one; all workers must call it."""
        own = optimizer.state_dict()
        parameters = _parameters(optimizer)
        state = {
            i: {key: _whole(value, parameters[i]) for key, value in each.items()}
            for i, each in own["state"].items()
        }
        return {**own, "state": state}

    def load_optimizer_state(self, optimizer: Optimizer, state: Mapping[str, Any]) -> None:
        """Load this worker's parts of a whole state."""
        parameters = _parameters(optimizer)
        parts = {
            i: {key: part_of(value, parameters[i]) for key, value in each.items()}
            for i, each in state["state"].items()
        }
        optimizer.load_state_dict({**state, "state": parts})


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _whole(value: Any, parameter: Tensor) -> Any:
    """Return an entry of a parameter's state as a whole."""
    is_part = isinstance(value, Tensor) and value.dim() and not is_divided(value)
    if is_part and is_divided(parameter) and value.shape == own_part(parameter).shape:
        return whole_of_part(value, parameter)
    return whole(value)


@contextmanager
def without_gradients(parameters: Sequence[Tensor]) -> Iterator[None]:
    """Hide gradients: optimizers leave parameters without one as they are."""
    hidden = [(p, p.grad) for p in parameters]
    for p, _ in hidden:
        p.grad = None
    try:
        yield
    finally:
        for p, grad in hidden:
            p.grad = grad
