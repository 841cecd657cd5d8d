"""The activations of a step: what a worker keeps of them for backward, and sends to others.

The batch decides how large they are, so they are counted in one training step, the first one of a
divided model. What techniques send, they tell by `sends`, with the shapes that they see. All hooks
are removed when the step ends: later steps run none of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from fleetx import torch_private
from fleetx.step.kept_tensors import KeptTensors


class Activations:
    """The activations of one worker in a step."""

    def __init__(self) -> None:
        self.is_known = False
        """Whether the step is over."""
        self.kept = 0
        """Bytes kept for backward, at the peak."""
        self._sent: dict[tuple[str, ...], float] = {}
        self._removes: list[Callable[[], None]] = []
        self._tensors: KeptTensors | None = None
        self._pass: Any = None  # the context of a forward pass that is running
        self._has_run = False

    def sent(self, *axes: str) -> float | None:
        """Return the bytes sent to workers along some dimensions; None if no step is over yet."""
        return self._sent.get(axes, 0.0) if self.is_known else None

    # -- counting -------------------------------------------------------------------------
    def sends(self, *axes: str, forward: float = 0.0, backward: float = 0.0) -> None:
        """Add what this place in a forward pass sends, and what it will send in backward.

        If the pass is repeated in backward, so is what it sends.
        """
        if self.is_known or not self._has_run:
            return
        if torch_private.current_graph_task_id() != -1:
            backward = 0.0
        elif self._pass is None:
            return
        self._sent[axes] = self._sent.get(axes, 0.0) + forward + backward

    def until_known(self, remove: Callable[[], None]) -> None:
        """Have something removed when the step is over."""
        self._removes.append(remove)

    def watch(self, model: nn.Module) -> None:
        """Count in the forward passes of a model."""
        enter = model.register_forward_pre_hook(self._enter)
        leave = model.register_forward_hook(self._leave, always_call=True)
        self._removes += [enter.remove, leave.remove]

    @contextmanager
    def running(self, modules: Sequence[nn.Module]) -> Iterator[None]:
        """Count in a forward pass of these modules that someone else runs."""
        if not self.is_known:
            self._begin(modules)
        try:
            yield
        finally:
            self._leave()

    def end(self) -> None:
        """Take what was counted as that of a step, if a training pass has run."""
        if self._has_run and not self.is_known:
            assert self._tensors is not None
            self.is_known, self.kept, self._tensors = True, self._tensors.peak, None
            for remove in self._removes:
                remove()
            self._removes = []

    def _enter(self, model: nn.Module, _: Any) -> None:
        if model.training and torch.is_grad_enabled() and not torch.compiler.is_compiling():
            self._begin([model])

    def _begin(self, modules: Sequence[nn.Module]) -> None:
        if self.is_known or self._pass is not None:
            return
        if self._tensors is None:
            self._tensors = KeptTensors(p for module in modules for p in module.parameters())
        self._pass = self._tensors.hooks()
        self._pass.__enter__()
        self._has_run = True

    def _leave(self, *_: Any) -> None:
        if self._pass is not None:
            self._pass.__exit__(None, None, None)
            self._pass = None

    def __reduce__(self) -> Any:
        return _nothing, ()  # a copy of a model is not what the step trains


def _nothing() -> Activations:
    """Return activations that are not counted."""
    made = Activations()
    made.is_known = True
    return made
