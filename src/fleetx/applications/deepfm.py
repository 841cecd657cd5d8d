"""DeepFM: Guo et al., "DeepFM: A Factorization-Machine based Neural Network", 2017.

Every number and every slot is a feature with a weight and a row of factors. The score is the sum of
a linear part, of the products of all pairs of rows, and of a perceptron on the rows.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fleetx.applications.criteo_model import ROW_BOUND, CriteoModel, CriteoSizes
from fleetx.applications.named_layers import linear_weights, named_fc, weight
from fleetx.applications.perceptron import perceptron, perceptron_weights, static_perceptron
from fleetx.applications.rows import embedding_rows
from fleetx.static import layers
from fleetx.static.building.param_attr import ParamAttr
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import Uniform

_WEIGHTS, _FACTORS, _DENSE = "deepfm_weights", "deepfm_factors", "deepfm_dense_factors"


class DeepFMModule(nn.Module):
    """The network as a module; `on_servers` makes its rows `SparseEmbedding`s."""

    def __init__(self, sizes: CriteoSizes | None = None, *, on_servers: bool = False) -> None:
        super().__init__()
        sizes = sizes or CriteoSizes()
        self.linear = nn.Linear(sizes.dense, 1)
        self.dense_factors = nn.Parameter(torch.empty(sizes.dense, sizes.row))
        nn.init.uniform_(self.dense_factors, -ROW_BOUND, ROW_BOUND)
        self.row_weights = embedding_rows(
            _WEIGHTS, sizes.ids, 1, on_servers=on_servers, bound=ROW_BOUND
        )
        self.row_factors = embedding_rows(
            _FACTORS, sizes.ids, sizes.row, on_servers=on_servers, bound=ROW_BOUND
        )
        self.deep = perceptron((sizes.dense + sizes.slots) * sizes.row, sizes.hidden)

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        """Return scores [N] of numbers [N, dense] and ids [N, slots]."""
        first = self.linear(dense) + self.row_weights(ids).sum(1)
        rows = torch.cat([dense.unsqueeze(2) * self.dense_factors, self.row_factors(ids)], dim=1)
        pairs = (rows.sum(1).square() - rows.square().sum(1)).sum(1, keepdim=True) / 2
        return (first + pairs + self.deep(rows.flatten(1))).squeeze(1)


class DeepFM(CriteoModel):
    """DeepFM as a static click-through-rate model."""

    def scores(self, dense: Variable, ids: Variable) -> Variable:
        """Add the network; return its scores."""
        sizes = self.sizes
        linear = named_fc("deepfm_linear", dense, 1)
        first = layers.elementwise_add(
            linear, layers.reduce_sum(self.rows_of(_WEIGHTS, ids, 1), dim=1)
        )
        rows = self._all_rows(dense, ids)
        square = layers.square(layers.reduce_sum(rows, dim=1))
        squares = layers.reduce_sum(layers.square(rows), dim=1)
        pairs = layers.scale(
            layers.reduce_sum(layers.elementwise_sub(square, squares), dim=1, keep_dim=True), 0.5
        )
        flat = layers.reshape(rows, [-1, (sizes.dense + sizes.slots) * sizes.row])
        deep = static_perceptron("deepfm_fc", flat, sizes.hidden)
        self.weights = {
            "dense_factors": weight(_DENSE),
            "row_weights.weight": weight(_WEIGHTS),
            "row_factors.weight": weight(_FACTORS),
            **linear_weights("deepfm_linear", "linear"),
            **perceptron_weights("deepfm_fc", "deep", sizes.hidden),
        }
        return layers.elementwise_add(layers.elementwise_add(first, pairs), deep)

    def _all_rows(self, dense: Variable, ids: Variable) -> Variable:
        """Return factors [N, dense + slots, row] of all features."""
        sizes = self.sizes
        factors = layers.create_parameter(
            [sizes.dense, sizes.row],
            "float32",
            attr=ParamAttr(name=_DENSE, initializer=Uniform(-ROW_BOUND, ROW_BOUND)),
        )
        numbers = layers.elementwise_mul(layers.unsqueeze(dense, [2]), factors)
        return layers.concat([numbers, self.rows_of(_FACTORS, ids, sizes.row)], axis=1)

    def make_module(self) -> nn.Module:
        """Return the same network as a module."""
        return DeepFMModule(self.sizes)
