"""Wide and deep: Cheng et al., "Wide & Deep Learning for Recommender Systems", 2016.

The wide part is linear in the numbers, the deep one is a perceptron on numbers and rows of ids.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fleetx.applications.criteo_model import ROW_BOUND, CriteoModel, CriteoSizes
from fleetx.applications.named_layers import linear_weights, named_fc, weight
from fleetx.applications.perceptron import perceptron, perceptron_weights, static_perceptron
from fleetx.applications.rows import embedding_rows
from fleetx.static import layers
from fleetx.static.graph.variable import Variable

_TABLE = "SparseFeatFactors"


class WideAndDeep(nn.Module):
    """The network as a module; `on_servers` makes its rows a `SparseEmbedding`."""

    def __init__(self, sizes: CriteoSizes | None = None, *, on_servers: bool = False) -> None:
        super().__init__()
        sizes = sizes or CriteoSizes()
        self.rows = embedding_rows(
            _TABLE, sizes.ids, sizes.row, on_servers=on_servers, bound=ROW_BOUND
        )
        self.wide = nn.Linear(sizes.dense, 1)
        self.deep = perceptron(sizes.dense + sizes.slots * sizes.row, sizes.hidden)

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        """Return scores [N] of numbers [N, dense] and ids [N, slots]."""
        joint = torch.cat([dense, self.rows(ids).flatten(1)], dim=1)
        return (self.wide(dense) + self.deep(joint)).squeeze(1)


class MultiSlotCTR(CriteoModel):
    """Wide and deep as a static click-through-rate model."""

    def scores(self, dense: Variable, ids: Variable) -> Variable:
        """Add the network; return its scores."""
        sizes = self.sizes
        rows = self.rows_of(_TABLE, ids, sizes.row)
        flat = layers.reshape(rows, [-1, sizes.slots * sizes.row])
        joint = layers.concat([dense, flat], axis=1)
        deep = static_perceptron("deep_fc", joint, sizes.hidden)
        scores = layers.elementwise_add(named_fc("wide_fc", dense, 1), deep)
        self.weights = {
            "rows.weight": weight(_TABLE),
            **linear_weights("wide_fc", "wide"),
            **perceptron_weights("deep_fc", "deep", sizes.hidden),
        }
        return scores

    def make_module(self) -> nn.Module:
        """Return the same network as a module."""
        return WideAndDeep(self.sizes)
