"""Distributions with the methods that Paddle 2.x added to those of 1.x."""

from __future__ import annotations

import math

from fleetx.static import layers
from fleetx.static.building.argument_checks import check_type
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.distributions import Categorical as _Categorical
from fleetx.static.tensor.manipulation import gather
from fleetx.static.tensor.random import multinomial
from fleetx.static.tensor.search import index_sample

__all__ = ["Categorical"]


class Categorical(_Categorical):
    """One of several classes.

    As in Paddle, entropies and divergences use the class probabilities softmax(logits); samples and
    probabilities use logits / sum(logits).
    """

    def _chances(self) -> Variable:
        """Return logits / sum(logits) with one row per distribution."""
        logits = self.logits
        if len(logits.shape) != 2:
            logits = layers.reshape(logits, [-1, logits.shape[-1]])
        return logits / layers.reduce_sum(logits, dim=-1, keep_dim=True)

    def sample(self, shape: list[int], seed: int = 0) -> Variable:
        """Return sampled classes; the dimensions `shape` precede those of the batch."""
        check_type(shape, "shape", list, "sample")
        drawn = multinomial(self._chances(), math.prod(shape), replacement=True)
        return layers.reshape(layers.transpose(drawn, [1, 0]), [*shape, *self.logits.shape[:-1]])

    def entropy(self) -> Variable:
        """Return -sum(p log p) over the last dimension."""
        return layers.squeeze(super().entropy(), [-1])

    def probs(self, value: Variable) -> Variable:
        """Return the probabilities of classes.

        A list of classes is looked up in each distribution; otherwise `value` has a row of classes
        per distribution.
        """
        batch = list(self.logits.shape[:-1])
        if len(value.shape) == 1 or not batch:
            found = gather(self._chances(), layers.reshape(value, [-1]), axis=1)
            return layers.reshape(found, [*batch, *value.shape])
        rows = layers.reshape(value, [-1, value.shape[-1]])
        return layers.reshape(index_sample(self._chances(), rows), list(value.shape))

    def log_prob(self, value: Variable) -> Variable:
        """Return the log-probabilities of classes."""
        return layers.log(self.probs(value))
