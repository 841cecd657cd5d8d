"""Training state in an elastic job: sent to new workers, restored when a step is discarded.

A new worker receives everything that affects the next step: parameters, buffers, the state of
optimizer and techniques, the position in the data, and the objects that the script shares. It is
sent as text and bytes; nothing is unpickled.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from math import prod
from typing import Any, Protocol

import torch
from torch import nn

from fleetx.comm.elastic_group import broadcast_bytes, broadcast_content
from fleetx.fleet.collective.distributed_optimizer import DistributedOptimizer
from fleetx.fleet.saving.state_text import flatten, restore


class Stateful(Protocol):
    """An object whose state can be saved and loaded, such as a learning-rate scheduler."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""

    def load_state_dict(self, state: dict[str, Any]) -> Any:
        """Load what `state_dict` returned."""


class SetState:
    """An object whose state is set by `set_state_dict`, such as a scheduler of a program."""

    def __init__(self, item: Any) -> None:
        self._item = item

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""
        return dict(self._item.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set the state to what `state_dict` returned."""
        self._item.set_state_dict(state)


class SharedState:
    """The trained objects of an elastic job, and those that the script shares."""

    def __init__(self, shared: Mapping[str, Stateful]) -> None:
        self._shared = shared
        self._boundary: dict[str, Any] = {}

    def capture(self) -> dict[str, Any]:
        """Return what is trained."""
        raise NotImplementedError

    def load(self, state: dict[str, Any]) -> None:
        """Load what `capture` returned on another worker."""
        raise NotImplementedError

    def remember(self, *, everything: bool) -> None:
        """Note the state before a step: what forward and the script change, or `everything`."""
        self._boundary = {
            "shared": {n: copy.deepcopy(i.state_dict()) for n, i in self._shared.items()}
        }

    def put_back(self) -> None:
        """Restore the state that was noted before the step."""
        for name, item in self._shared.items():
            if name in self._boundary["shared"]:
                item.load_state_dict(self._boundary["shared"][name])

    # ---- newcomers

    def send(self, source: int) -> None:
        """Send the state to the other workers of the group; this worker is number `source`."""
        tensors: dict[str, torch.Tensor] = {}
        shared = {name: item.state_dict() for name, item in self._shared.items()}
        text = flatten({**self.capture(), "shared": shared}, "", tensors)
        kinds = [[name, _dtype(t), list(t.shape)] for name, t in tensors.items()]
        broadcast_bytes(json.dumps({"state": text, "tensors": kinds}).encode(), source)
        for tensor in tensors.values():
            content = tensor.reshape(-1).view(torch.uint8)
            broadcast_content(content, content.numel(), source)

    def receive(self, source: int, *, is_needed: bool) -> None:
        """Receive the state of worker `source`; discard it if this worker has it already."""
        header = json.loads(broadcast_bytes(None, source))
        tensors: dict[str, torch.Tensor] = {}
        for name, kind, shape in header["tensors"]:
            dtype = getattr(torch, kind)
            size = prod(shape) * dtype.itemsize
            content = torch.empty(size, dtype=torch.uint8) if is_needed else None
            broadcast_content(content, size, source)
            if content is not None:
                tensors[name] = content.view(dtype).view(shape)
        if is_needed:
            self._load(restore(header["state"], tensors))

    def _load(self, state: dict[str, Any]) -> None:
        self.load(state)
        if set(state["shared"]) != set(self._shared):
            raise ValueError(
                f"this worker shares {sorted(self._shared)} by fleet.share_state, and the others "
                f"share {sorted(state['shared'])}: call it with the same names on all workers."
            )
        for name, item in self._shared.items():
            item.load_state_dict(state["shared"][name])


class TrainingState(SharedState):
    """A model and its optimizer, and what the script shares."""

    def __init__(
        self, model: nn.Module, optimizer: DistributedOptimizer, shared: Mapping[str, Stateful]
    ) -> None:
        super().__init__(shared)
        self._model, self._optimizer = model, optimizer

    def capture(self) -> dict[str, Any]:
        """Return the states of model and optimizer."""
        return {
            "model": dict(self._model.state_dict()),
            "optimizer": self._optimizer.state_dict(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Load what `capture` returned on another worker."""
        self._model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._optimizer.train_step.grad_sync.begin_as_newcomer()

    def remember(self, *, everything: bool) -> None:
        """Note the state before a step: what forward and the script change, or `everything`."""
        super().remember(everything=everything)
        step = self._optimizer.train_step
        self._boundary |= {
            "buffers": [b.detach().clone() for b in self._model.buffers()],
            "groups": [_settings(group) for group in self._optimizer.param_groups],
            "stages": copy.deepcopy(step.state_dict()),
        }
        if everything:
            self._boundary["parameters"] = [p.detach().clone() for p in self._model.parameters()]
            self._boundary["optimizer"] = copy.deepcopy(self._optimizer.inner.state_dict())

    @torch.no_grad()
    def put_back(self) -> None:
        """Restore the state that was noted before the step."""
        noted = self._boundary
        if "optimizer" in noted:
            for parameter, value in zip(self._model.parameters(), noted["parameters"], strict=True):
                parameter.copy_(value)
            self._optimizer.inner.load_state_dict(noted["optimizer"])
        for buffer, value in zip(self._model.buffers(), noted["buffers"], strict=True):
            buffer.copy_(value)
        for group, settings in zip(self._optimizer.param_groups, noted["groups"], strict=True):
            group.update(settings)
        self._optimizer.train_step.load_state_dict(noted["stages"])
        super().put_back()
        for parameter in self._model.parameters():
            parameter.grad = None


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    return {key: copy.copy(value) for key, value in group.items() if key != "params"}


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
