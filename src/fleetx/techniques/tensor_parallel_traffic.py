"""What the workers that divide a layer send to each other, by the style that divides it.

A ring passes a tensor on once where its parts are put together or summed into parts, and twice
where sums of it become whole. Whatever is done with a tensor in forward has its counterpart in
backward, but for sums, whose gradients all workers have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from torch import Tensor, nn

from fleetx.comm.divided_tensors import is_divided
from fleetx.step.activations import Activations
from fleetx.step.technique import ring_bytes
from fleetx.techniques.tensor_parallel_sequence import meets_parts
from fleetx.techniques.tensors_inside import all_tensors


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """How often a tensor is passed round in forward, and its gradient in backward."""

    forward: int = 0
    backward: int = 0

    @property
    def total(self) -> int:
        """Both together."""
        return self.forward + self.backward


_NOTHING = Rounds()
_SUM, _SUM_BACK = Rounds(forward=2), Rounds(backward=2)
_GATHER, _GATHER_BACK = Rounds(forward=1), Rounds(backward=1)


def rounds_of(style: str, *, in_parts: bool = False, device: str = "") -> tuple[Rounds, Rounds]:
    """Return how often the inputs and the outputs of a module are passed round; `in_parts`: what
    enters a colwise layer, or leaves a rowwise one, is a part of the sequence."""
    scatter = 2 if device == "cpu" else 1  # Gloo's reduce-scatter is an all-reduce inside
    put_together = Rounds(forward=1, backward=scatter)
    taken_apart = Rounds(forward=scatter, backward=1)
    return {
        "colwise": (put_together if in_parts else _SUM_BACK, _NOTHING),
        "rowwise": (_NOTHING, taken_apart if in_parts else _SUM),
        "gathered": (_SUM_BACK, _GATHER),
        "vocabulary": (_SUM_BACK, _NOTHING),
        "embedding": (_NOTHING, _SUM),
        "split": (_GATHER_BACK, _NOTHING),
        "whole": (put_together, _NOTHING),
        "repeated": (_GATHER, _GATHER_BACK),
        "joined": (_NOTHING, _GATHER),
        "sequence": (_NOTHING, _NOTHING),
    }[style]


class LayerTraffic:
    """Counts what a divided model sends in the forward passes of a step."""

    def __init__(
        self, model: nn.Module, plan: Mapping[str, str], workers: int, activations: Activations
    ) -> None:
        self._layers = [(model.get_submodule(n), s, _meets(n, plan)) for n, s in plan.items()]
        self._device = next(model.parameters()).device.type
        self._workers = workers
        self._activations = activations

    def watch_inputs(self) -> None:
        """Look at what enters layers; called before they are divided, to see it first."""
        for module, style, in_parts in self._layers:
            rounds, _ = rounds_of(style, in_parts=in_parts, device=self._device)
            if rounds.total:
                is_part = in_parts or style in ("whole", "repeated")
                self._watch_input(module, rounds, is_part=is_part)

    def _watch_input(self, module: nn.Module, rounds: Rounds, *, is_part: bool) -> None:
        def enter(_: nn.Module, args: Any, kwargs: Any) -> None:
            x = all_tensors((args, kwargs))[0]
            if not is_divided(x):  # else it has been put together for several layers
                self._add(x, rounds, self._workers if is_part else 1)

        handle = module.register_forward_pre_hook(enter, with_kwargs=True)
        self._activations.until_known(handle.remove)

    def watch_outputs(self) -> None:
        """Look at what leaves layers; called after they are divided, to see it last."""
        for module, style, in_parts in self._layers:
            if style == "vocabulary":
                self._watch_loss(module)
            if style in ("sequence", "joined"):
                self._watch_parameters(module)
            _, rounds = rounds_of(style, in_parts=in_parts, device=self._device)
            if rounds.total:
                is_part = in_parts or style == "repeated"
                self._watch_output(module, rounds, is_part=is_part, pads=style == "gathered")

    def _watch_output(
        self, module: nn.Module, rounds: Rounds, *, is_part: bool, pads: bool
    ) -> None:
        def leave(_: nn.Module, __: Any, output: Any) -> None:
            y = all_tensors(output)[0]
            own = -(-y.shape[-1] // self._workers) * self._workers / y.shape[-1] if pads else 1
            self._add(y, rounds, self._workers if is_part else own)

        self._activations.until_known(module.register_forward_hook(leave).remove)

    def _watch_loss(self, module: nn.Module) -> None:
        def leave(_: nn.Module, __: Any, output: Tensor) -> None:
            # Cross entropy needs of every sample the largest output, the sum and its own.
            self._add(output, Rounds(forward=6), 1 / output.shape[-1])

        self._activations.until_known(module.register_forward_hook(leave).remove)

    def _watch_parameters(self, module: nn.Module) -> None:
        """Count the gradients of whole parameters that compute on parts: sums of all workers."""

        def leave(_: nn.Module, __: Any, output: Any) -> None:
            for parameter in module.parameters():
                self._add(parameter, _SUM_BACK, 1)

        self._activations.until_known(module.register_forward_hook(leave).remove)

    def _add(self, tensor: Tensor, rounds: Rounds, share: float) -> None:
        """Add a tensor, the whole of which is `share` times as large."""
        once = ring_bytes(prod(tensor.shape) * tensor.element_size() * share, self._workers) / 2
        backward = rounds.backward * once if tensor.requires_grad else 0.0
        self._activations.sends("mp", forward=rounds.forward * once, backward=backward)


def _meets(name: str, plan: Mapping[str, str]) -> bool:
    """Return whether a module is a linear layer that gets or leaves a part of a sequence."""
    return plan[name] in ("colwise", "rowwise") and meets_parts(name, plan)
