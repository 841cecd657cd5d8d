"""How long the layers of a pipeline take, measured: the slowest stage is to be as fast as possible.

Each layer runs forward and backward on what the layers before it return, beginning with the inputs
that the model's method `pipeline_inputs()` returns. Parameters, buffers, gradients and random
numbers are as before afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fleetx.techniques.random_state import random_state_kept

_RUNS = 3
"""Of which the fastest counts, after one that is not counted."""


def example_inputs(model: nn.Module) -> Tensor:
    """Return the inputs of a micro-batch, as the model gives them."""
    if not hasattr(model, "pipeline_inputs"):
        raise ValueError(
            f"pipeline_configs['cut_by'] is 'time', but {type(model).__name__} has no inputs to "
            "measure with: give it a method pipeline_inputs() that returns those of one "
            "micro-batch, or set cut_by to 'parameters'."
        )
    found: Tensor = model.pipeline_inputs()  # type: ignore[operator]
    return found


def measure_layers(
    layers: Mapping[str, nn.Module], inputs: Tensor, wrap: Callable[[Any], Any]
) -> list[float]:
    """Return the seconds of forward and backward of each layer; `wrap` is the precision's."""
    found, x = [], inputs
    with random_state_kept(), _as_before(layers), torch.enable_grad():
        for layer in layers.values():
            run = wrap(layer)
            found.append(min([_seconds(run, x) for _ in range(1 + _RUNS)][1:]))
            with torch.no_grad():
                x = run(x)
    return found


def _seconds(run: Callable[[Tensor], Tensor], x: Tensor) -> float:
    entering = x.detach().requires_grad_(x.is_floating_point())
    device = torch.get_device_module(x.device.type)
    device.synchronize()
    start = time.perf_counter()
    outputs = run(entering)
    if outputs.requires_grad:
        outputs.backward(torch.ones_like(outputs))  # type: ignore[no-untyped-call]
    device.synchronize()
    return time.perf_counter() - start


@contextmanager
def _as_before(layers: Mapping[str, nn.Module]) -> Iterator[None]:
    """Put gradients and buffers back at the end of the block."""
    modules = nn.ModuleList(layers.values())
    gradients = [(p, p.grad) for p in modules.parameters()]
    buffers = [(buffer, buffer.clone()) for buffer in modules.buffers()]
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for buffer, was in buffers:
            buffer.copy_(was)
