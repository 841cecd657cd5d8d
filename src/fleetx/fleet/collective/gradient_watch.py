"""Find gradients that backward has not averaged over workers, before they update a parameter.

DistributedDataParallel averages a gradient once per forward pass of its own. Other gradients (from
calls of the inner module or its methods, or from a second backward pass) stay on this worker, and
torch does not report it. A hook on every parameter counts them; it costs about a microsecond per
parameter and backward pass.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

_log = logging.getLogger("fleetx.fleet")
_MOST_NAMES = 5
# In how many wrapped models a parameter is. One that several share may be averaged by either.
_holders: Any = WeakIdKeyDictionary()


class GradientWatch:
    """Which parameters of a model have gradients that are averages."""

    def __init__(self, module: nn.Module, *, finds_unused: bool) -> None:
        self._finds_unused = finds_unused
        self._parameters = dict(module.named_parameters())
        self._passes = 0  # forward passes whose gradients are averaged
        self._averaged = dict.fromkeys(self._parameters, 0)
        """In which of them each gradient was averaged last."""
        self._count = 0  # gradients averaged since the last of them
        self._local: set[str] = set()
        self._thawed: set[str] = set()
        self._is_asked_for = False  # the last forward pass was under no_sync
        self._has_warned = False
        self._trained = [name for name, p in self._parameters.items() if p.requires_grad]
        self._removes: list[Callable[[], None]] = []
        for name, parameter in self._parameters.items():
            _holders[parameter] = _holders.get(parameter, 0) + 1
            trained = parameter.requires_grad
            if trained or parameter.is_floating_point() or parameter.is_complex():
                hook = self._note(name) if trained else self._note_thawed(name)
                parameter.requires_grad_()  # a frozen one may be unfrozen later
                handle = parameter.register_post_accumulate_grad_hook(hook)
                parameter.requires_grad_(trained)
                self._removes.append(handle.remove)

    def end(self) -> None:
        """Remove the hooks."""
        for remove in self._removes:
            remove()
        self._removes = []
        for parameter in self._parameters.values():
            _holders[parameter] -= 1
        self._parameters = {}

    def _note(self, name: str) -> Callable[[torch.Tensor], None]:
        averaged, local = self._averaged, self._local

        def note(_: torch.Tensor) -> None:
            if averaged[name] == self._passes:  # second backward after one forward, or the inner
                local.add(name)
            else:
                averaged[name] = self._passes
                self._count += 1
                local.discard(name)

        return note

    def _note_thawed(self, name: str) -> Callable[[torch.Tensor], None]:
        return lambda _: self._thawed.add(name)

    def begin_pass(self, *, averages: bool) -> None:
        """Note that the wrapped model has run forward; `averages` is false under no_sync."""
        self._is_asked_for = not averages
        if averages:
            self._passes += 1
            self._count = 0

    def unused(self) -> list[str]:
        """Return the parameters that got no gradient in the last backward pass."""
        return [name for name in self._trained if self._averaged[name] != self._passes]

    def check(self) -> None:
        """Raise RuntimeError if parameters would be updated with gradients of this worker only."""
        if not self._finds_unused and 0 < self._count < len(self._trained):
            raise RuntimeError(self.explain_unused())
        if self._thawed:
            names = _listed(self._with_gradient(self._thawed))
            self._thawed.clear()
            if names:
                raise RuntimeError(
                    f"{names} did not require gradients when fleet.distributed_model was called, "
                    "so they are not averaged over workers: call requires_grad_(True) before it."
                )
        if self._local:
            names = _listed(self._with_gradient(self._local))
            self._local.clear()
            if names:
                self._refuse_local(names)

    def _with_gradient(self, names: set[str]) -> list[str]:
        """Return the given parameters that would be updated."""
        found = [(name, self._parameters[name]) for name in self._parameters if name in names]
        return [name for name, p in found if p.grad is not None and _holders[p] == 1]

    def _refuse_local(self, names: str) -> None:
        if not self._is_asked_for:
            raise RuntimeError(
                f"backward reached {names} without the model that fleet.distributed_model "
                "returned, so these gradients are not averaged over workers: call that model, not "
                "the module inside or a method of it, and call backward once per forward pass (or "
                "average the gradients yourself, under model.no_sync())."
            )
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "This step updates %s by gradients from model.no_sync(), which fleet does not "
                "average over workers: run the last backward pass before step() outside of it, "
                "unless the script averages them itself.",
                names,
            )

    def explain_unused(self) -> str:
        """Return a sentence about parameters without a gradient."""
        return (
            f"{_listed(self.unused())} got no gradient from the last backward pass, and gradients "
            "are averaged only when all are there: set strategy.find_unused_parameters = True if "
            "the loss does not depend on every parameter in every step, or freeze them with "
            "requires_grad_(False) before fleet.distributed_model."
        )


def _listed(names: list[str]) -> str:
    """Return names as a subject of a sentence; nothing for none."""
    if not names:
        return ""
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    plural = "parameters" if len(names) > 1 else "parameter"
    return f"{plural} {', '.join(map(repr, names[:_MOST_NAMES]))}{more}"
