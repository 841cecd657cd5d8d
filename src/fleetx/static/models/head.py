"""Shared parts of the models: the classifier's head, and the error for `pretrained=True`."""

from __future__ import annotations

from typing import Any

from fleetx.static.graph.variable import Variable
from fleetx.static.nn import Flatten, Layer, Sequential
from fleetx.static.nn.common import Dropout, Linear

__all__ = ["Classifier", "refuse_pretrained"]


class Classifier(Layer):
    """A network with a head: pooling (unless `with_pool` is False) and `num_classes` scores."""

    num_classes: int
    with_pool: bool

    def __init__(self, num_classes: int, with_pool: bool) -> None:
        super().__init__()
        self.num_classes, self.with_pool = num_classes, with_pool

    def extract(self, x: Variable) -> Variable:
        """Return the features of images."""
        raise NotImplementedError(f"{type(self).__name__} does not define extract().")

    def _end(self, x: Variable, pool: Layer | None, scores: Layer | None) -> Variable:
        if pool is not None:
            x = pool(x)
        return x if scores is None else scores(Flatten(1)(x))


def refuse_pretrained(pretrained: Any, model: str) -> None:
    """Reject `pretrained=True`, and explain how to load weights."""
    if pretrained:
        raise ValueError(
            f"{model}(pretrained=True) is not supported: build {model}() and load a file with "
            "fleetx.static.load, or give the arrays of a .pdparams file to set_state_dict()."
        )


def dropout_linear(inputs: int, outputs: int, p: float) -> Sequential:
    """Return dropout followed by a linear map."""
    return Sequential(Dropout(p), Linear(inputs, outputs))
