"""Operations and memory of a model, determined on meta tensors, without allocating it.

One forward and backward pass records the operations, the tensors saved for backward, and the inputs
and outputs of each block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from fleetx.fleet.collective.explain import module_sizes
from fleetx.step.kept_tensors import KeptTensors
from fleetx.step.technique import Sizes
from fleetx.techniques.pipeline_stages import find_layers
from fleetx.techniques.sharding_parameters import find_blocks
from fleetx.techniques.tensor_parallel_plan import find_plan


@dataclass
class ModuleFigures:
    """A block, a layer of a pipeline or a divided module."""

    elements: int = 0
    """Trainable elements."""
    entering: int = 0
    """Bytes of its inputs."""
    leaving: int = 0
    """Bytes of its outputs."""
    saved: int = 0
    """Bytes saved for its backward pass, without parameters."""
    operations: int = 0
    """Floating-point operations of its forward pass."""


@dataclass
class ModelFigures:
    """A model and one worker's batch."""

    sizes: Sizes
    samples: int
    """Samples of the batch: the first dimension of its first tensor."""
    operations: float = 0.0
    """Floating-point operations of forward and backward."""
    repeated: float = 0.0
    """The share of operations that every worker computes where workers divide layers: those of
    layers which the plan leaves whole."""
    saved: int = 0
    """Bytes saved for backward, without parameters."""
    blocks: dict[str, ModuleFigures] = field(default_factory=dict)
    """Blocks that stage 3 gathers one at a time and `recompute` recomputes."""
    block_classes: tuple[str, ...] = ()
    """The names of their classes."""
    layers: dict[str, ModuleFigures] = field(default_factory=dict)
    """Layers between which a pipeline can be split; empty if the model does not define them."""
    styles: dict[str, str] = field(default_factory=dict)
    """How tensor parallelism divides modules; empty if no plan is known."""
    divided: dict[str, ModuleFigures] = field(default_factory=dict)
    """The modules of `styles`."""
    divided_elements: int = 0
    """Trainable elements of these; shared parameters count once."""
    layer_modules: dict[str, nn.Module] = field(default_factory=dict)


def examine(
    model: nn.Module,
    batch: Sequence[Any],
    more: Mapping[str, Any] | None = None,
    *,
    plan: Sequence[str] = (),
) -> ModelFigures:
    """Return the figures of a model on meta tensors, called with a batch on meta tensors; `more`
    are arguments by name, `plan` is that of `outline`."""
    figures = outline(model, (batch, more or {}), plan)
    counter = FlopCounterMode(display=False)
    recorder = _Recorder(model, figures, counter)
    with counter, torch.device("meta"), recorder:
        outputs = list(_tensors(model(*batch, **(more or {}))))
        recorder.end_forward()
        sum(each.float().mean() for each in outputs if each.requires_grad).backward()  # type: ignore[union-attr]
    model.zero_grad(set_to_none=True)
    figures.operations = float(counter.get_total_flops())
    return figures


def outline(model: nn.Module, batch: Any, plan: Sequence[str] = ()) -> ModelFigures:
    """Return what a model shows without being run; `plan` is how the strategy says to divide its
    layers, instead of the model's own plan."""
    first = next(iter(_tensors(batch)), None)
    if first is None or not first.dim():
        raise ValueError("the batch of a plan needs a tensor whose first dimension is its samples.")
    figures = ModelFigures(
        sizes=module_sizes(model.parameters(), model.buffers()), samples=first.shape[0]
    )
    blocks = find_blocks(model)
    figures.blocks = _figures_of(blocks)
    figures.block_classes = tuple(dict.fromkeys(type(b).__name__ for b in blocks.values()))
    figures.layer_modules = _asked(find_layers, model)
    figures.layers = _figures_of(figures.layer_modules)
    figures.styles = _asked(partial(find_plan, given=plan), model)
    divided = {name: model.get_submodule(name) for name in figures.styles}
    figures.divided = _figures_of(divided)
    shared = {p for module in divided.values() for p in module.parameters() if p.requires_grad}
    figures.divided_elements = sum(p.numel() for p in shared)
    return figures


def _asked(find: Any, model: nn.Module) -> dict[str, Any]:
    """Return what a technique finds in a model; empty if it cannot divide the model."""
    try:
        return dict(find(model))
    except ValueError:
        return {}


def _figures_of(modules: Mapping[str, nn.Module]) -> dict[str, ModuleFigures]:
    return {
        name: ModuleFigures(sum(p.numel() for p in module.parameters() if p.requires_grad))
        for name, module in modules.items()
    }


def _whole_layers(model: nn.Module, styles: Mapping[str, str]) -> dict[str, nn.Module]:
    """Return the layers with parameters that a plan of tensor parallelism does not divide."""
    return {
        name: module
        for name, module in model.named_modules()
        if styles and name and name not in styles and any(True for _ in module.parameters(False))
    }


class _Recorder:
    """Records inputs and outputs of modules, and tensors saved for backward."""

    def __init__(self, model: nn.Module, figures: ModelFigures, counter: FlopCounterMode) -> None:
        self._model = model
        self._figures = figures
        self._counter = counter
        self._whole = _figures_of(_whole_layers(model, figures.styles))
        self._stack = ExitStack()
        self._kept = KeptTensors(model.parameters())

    def __enter__(self) -> None:
        figures = self._figures
        for group in (figures.blocks, figures.layers, figures.divided, self._whole):
            for name, each in group.items():
                self._watch(self._model.get_submodule(name), each)
        self._stack.enter_context(self._kept.hooks())

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    def _watch(self, module: nn.Module, figures: ModuleFigures) -> None:
        def enter(_: nn.Module, args: Any) -> None:
            figures.entering += _bytes(args)
            figures.operations -= self._counter.get_total_flops()
            figures.saved -= self._kept.bytes

        def leave(_: nn.Module, __: Any, output: Any) -> None:
            figures.leaving += _bytes(output)
            figures.operations += self._counter.get_total_flops()
            figures.saved += self._kept.bytes

        self._stack.callback(module.register_forward_pre_hook(enter).remove)
        self._stack.callback(module.register_forward_hook(leave).remove)

    def end_forward(self) -> None:
        """Note what is kept for backward, and compare the operations of whole layers with all of
        the forward pass that ends now."""
        self._figures.saved = self._kept.bytes
        repeated = sum(each.operations for each in self._whole.values())
        self._figures.repeated = repeated / max(1, self._counter.get_total_flops())


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _tensors(each)
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _tensors(each)


def _bytes(value: Any) -> int:
    return sum(t.numel() * t.element_size() for t in _tensors(value))
