"""The fully connected part of recommendation models, as a module and as static layers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from fleetx.applications.named_layers import linear_weights, named_fc
from fleetx.applications.weights import Weight
from fleetx.static.graph.variable import Variable


def perceptron(inputs: int, hidden: Sequence[int]) -> nn.Sequential:
    """Return linear layers with ReLU in between, and a linear output of size one."""
    parts: list[nn.Module] = []
    for size in hidden:
        parts += [nn.Linear(inputs, size), nn.ReLU()]
        inputs = size
    return nn.Sequential(*parts, nn.Linear(inputs, 1))


def static_perceptron(name: str, value: Variable, hidden: Sequence[int]) -> Variable:
    """Return the output of the same layers, named `<name>_<number>`."""
    for number, size in enumerate(hidden):
        value = named_fc(f"{name}_{number}", value, size, act="relu")
    return named_fc(f"{name}_{len(hidden)}", value, 1)


def perceptron_weights(name: str, module: str, hidden: Sequence[int]) -> dict[str, Weight]:
    """Return the weights of both, by the module's keys."""
    weights: dict[str, Weight] = {}
    for number in range(len(hidden) + 1):
        weights |= linear_weights(f"{name}_{number}", f"{module}.{2 * number}")
    return weights
